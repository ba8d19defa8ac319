/*
 * RAM reset: memory that devices have mapped for writing
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef RAM_RESET_REWIND_MAPPINGS_H
#define RAM_RESET_REWIND_MAPPINGS_H

/*
 * Start or stop to note mappings; a stop drops all notes.  Mappings that exist
 * at the start are not noted.  BQL held.
 */
void mappings_note(bool on);

/* Whether all mappings were noted; false once there were too many */
bool mappings_are_known(void);

/* Mark all of each present mapping as dirty.  RAM is tracked, BQL held. */
void mappings_count_as_changed(void);

#endif
