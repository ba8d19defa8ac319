/*
 * RAM reset: watch the writes to memory that belongs to devices
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef RAM_RESET_REWIND_WATCH_H
#define RAM_RESET_REWIND_WATCH_H

#include "system/ram-reset/rewind/baseline.h"

/*
 * The dirty log may lack writes of QEMU itself to such memory.  The kernel
 * reports them if it can, see prim/watch.h.
 *
 * All functions: BQL held.  Except for watch_end(), vCPUs are stopped and I/O
 * is drained, so that nobody has pinned memory to write to it.
 */

/*
 * Watch the blocks of @baseline, an array of BaselineBlock, that belong to
 * devices.  A block that cannot be watched gets the reason in @unwatched.
 */
void watch_begin(GArray *baseline);

/*
 * Stop watching the blocks of @baseline; another user may then use userfaultfd
 * on the memory
 */
void watch_end(GArray *baseline);

/*
 * Set the bits in @bits, one for each target page, of the pages of @base that
 * have been written to.  False if the kernel cannot report them; then the block
 * is not watched any more.
 */
bool watch_fetch(BaselineBlock *base, unsigned long *bits);

/* Ignore writes so far to the pages in @bits; NULL for all pages */
void watch_restart(BaselineBlock *base, const unsigned long *bits);

#endif
