/*
 * RAM reset: what is written to memory that devices have of their own
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef RAM_RESET_REWIND_WATCH_H
#define RAM_RESET_REWIND_WATCH_H

#include "system/ram-reset/rewind/baseline.h"

/*
 * The dirty log does not tell all that QEMU itself writes there; the kernel
 * does, see prim/watch.h, where it can.
 *
 * All functions: BQL held, and other than for watch_end() vCPUs stopped and I/O
 * drained, so that nobody has memory pinned to write to it.
 */

/*
 * From now on, blocks of @baseline, an array of BaselineBlock, are watched, if
 * they are memory of a device's own.  Those that are not have the reason in
 * @unwatched.
 */
void watch_begin(GArray *baseline);

/* Nothing is watched any more, and somebody else may use userfaultfd on it */
void watch_end(void);

/*
 * Set bits in @bits, one for each target page, of what has been written to in
 * @base.  False if that is not known, and then the block is not watched any
 * more.
 */
bool watch_take(BaselineBlock *base, unsigned long *bits);

/* Pages of @bits, NULL for all, have not been written to any more */
void watch_anew(BaselineBlock *base, const unsigned long *bits);

#endif
