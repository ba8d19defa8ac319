/*
 * RAM reset: pages in which RAM may differ from the position
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef RAM_RESET_REWIND_CHANGES_H
#define RAM_RESET_REWIND_CHANGES_H

#include "system/ram-reset/rewind/baseline.h"

/*
 * Bitmaps have a bit for each target page of a block.  All functions: BQL held,
 * vCPUs stopped, I/O drained, the dirty log synchronized, between
 * ram_reset_dirty_begin_fetch() and ram_reset_dirty_end_fetch().
 */

/*
 * Set @bits to the changed pages of @base, and clear them in the log; later
 * calls report later writes.  For a block that is watched the caller calls
 * watch_restart().
 *
 * Returns: false if QEMU cannot know all of them, so that the whole block must
 *     be compared
 */
bool changes_fetch(BaselineBlock *base, unsigned long *bits);

/* Fetch the changed pages from the log and keep them for changes_fetch() */
void changes_keep(BaselineBlock *base);

#endif
