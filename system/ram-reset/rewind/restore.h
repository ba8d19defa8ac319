/*
 * RAM reset: undo the changes of RAM since the baseline
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef RAM_RESET_REWIND_RESTORE_H
#define RAM_RESET_REWIND_RESTORE_H

#include "system/ram-reset/block-list.h"
#include "system/ram-reset/rewind/baseline.h"
#include "system/ram-reset/rewind/points.h"

/*
 * Make the blocks of @list equal to the point @to, and fill in their info.  BQL
 * held, vCPUs stopped, I/O drained.
 *
 * @baseline: an array of BaselineBlock in the order of @list
 * @turn: the number of the load; it rises
 * @track: use the dirty log, which has been synchronized, and clear it;
 *     otherwise compare all pages
 *
 * @faults: set to the number of pages for which tracking has cost the guest a
 *     fault, or would have
 *
 * Returns: false with @errp set if a page of the baseline cannot be read; RAM
 *     may be restored in part, and the changes are lost
 */
bool restore_all(RamResetBlockList *list, GArray *baseline,
                 const RewindPoint *to, unsigned turn, bool track,
                 uint64_t *faults, Error **errp);

/*
 * Returns the number of pages that a comparison of all reads; sets @threads to
 * the number of its threads
 */
uint64_t restore_count_present(const RamResetBlockList *list,
                               unsigned *threads);

#endif
