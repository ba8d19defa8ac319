/*
 * RAM reset: restore pages of a block, in threads
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef RAM_RESET_REWIND_RESTORE_PAGES_H
#define RAM_RESET_REWIND_RESTORE_PAGES_H

#include "qemu/thread.h"
#include "system/ram-reset/rewind/baseline.h"
#include "system/ram-reset/rewind/points.h"

/*
 * RestoreJob: make a block equal to a point
 *
 * Bitmaps have a bit for each target page.  The content of pages in @own is in
 * @tree, that of all others in the baseline.
 *
 * @bits: the dirty pages; the present pages to @compare, NULL for all
 * @own: NULL if there are none; ends with the word of the last page
 * @differing: set to the pages that differed, to @compare
 * @leave_zeros: leave pages that are zero in the baseline
 * @turn: rises from load to load
 * @counts: the result
 */
typedef struct RestoreJob {
    BaselineBlock *base;
    const PageTree *tree;
    const unsigned long *bits, *own;
    unsigned long *differing;
    bool compare, leave_zeros;
    unsigned turn;
    RamCopyCounts counts;

    size_t next;                /* private */
    QemuMutex lock;             /* private */
} RestoreJob;


/*
 * Restore, or compare and restore, all pages of @job; @pages is their number.
 * BQL held, vCPUs stopped.
 */
void restore_pages(RestoreJob *job, uint64_t pages);

#endif
