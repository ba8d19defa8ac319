/*
 * RAM reset: undoing what has changed since the baseline was taken
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef RAM_RESET_REWIND_RESTORE_H
#define RAM_RESET_REWIND_RESTORE_H

#include "system/ram-reset/block-list.h"
#include "system/ram-reset/rewind/baseline.h"

/*
 * Make the blocks of @list what they are in @baseline, an array of
 * BaselineBlock in the same order, and fill in their info.  BQL held.
 *
 * @turn: rises from load to load
 * @track: go by the dirty log, which has been synchronized, and clear it;
 *     otherwise compare all there is
 *
 * Returns: how many pages the guest has paid a fault for, for being tracked,
 *     or would have
 */
uint64_t restore_all(RamResetBlockList *list, GArray *baseline, unsigned turn,
                     bool track);

/* How many pages there are to compare, and by how many @threads that is done */
uint64_t restore_count_present(const RamResetBlockList *list,
                               unsigned *threads);

#endif
