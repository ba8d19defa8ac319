/*
 * RAM reset: record the present RAM as a point
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef RAM_RESET_REWIND_RECORD_H
#define RAM_RESET_REWIND_RECORD_H

#include "system/ram-reset-rewind.h"
#include "system/ram-reset/block-list.h"
#include "system/ram-reset/rewind/points.h"

/*
 * Make @p equal to RAM, and fetch the changes from the dirty log, which has been
 * synchronized.  BQL held, vCPUs stopped, I/O drained.
 *
 * @list: fits @baseline, an array of BaselineBlock
 * @p: equal to RAM except for changes since the position; if @whole, any point
 * @whole: compare all of RAM with @baseline, which has no unread page;
 *     otherwise only the changed pages
 * @limit: largest points_size(); if it is reached, @make_room is called, which
 *     may be NULL
 *
 * Returns: false if there is no memory, or no room within @limit; @p is then of
 *     no use, and the changes are lost
 */
bool record_all(RamResetBlockList *list, GArray *baseline, RewindPoint *p,
                bool whole, uint64_t limit, RamResetMakeRoom *make_room);

#endif
