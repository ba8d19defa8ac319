/*
 * RAM reset: what devices have mapped to write to
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef RAM_RESET_REWIND_MAPPINGS_H
#define RAM_RESET_REWIND_MAPPINGS_H

/*
 * Note mappings from now on, or forget them and note no more.  BQL held.  Those
 * that there are already are not known until they end.
 */
void mappings_note(bool on);

/* Whether all have been noted, of which there is a limit */
bool mappings_are_known(void);

/* Those that there are now, all of each.  While RAM is tracked, BQL held */
void mappings_count_as_changed(void);

#endif
