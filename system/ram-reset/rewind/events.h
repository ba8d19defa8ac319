/*
 * RAM reset: changes of the machine that end the baseline
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef RAM_RESET_REWIND_EVENTS_H
#define RAM_RESET_REWIND_EVENTS_H

#include <stdbool.h>

/*
 * Drop the baseline when RAM is added, removed or resized, and lose the position
 * when a device is plugged.  Later calls do nothing.  BQL held.
 *
 * @has_block: whether the baseline has a block whose memory is at @host
 */
void events_begin(bool (*has_block)(const void *host));

#endif
