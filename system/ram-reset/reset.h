/*
 * RAM reset: the course of one reset, for strategies and other ways to reset
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef RAM_RESET_RESET_H
#define RAM_RESET_RESET_H

#include "system/ram-reset-load.h"
#include "system/ram-reset/block/block.h"

/* Whether the reset excludes @blk; true for each ignored block */
typedef bool RamResetLeftOut(const RamResetBlock *blk, void *opaque);

/* As ram_reset_begin(), but without the blocks for which @left_out is true */
void ram_reset_begin_without(RamResetLeftOut *left_out, void *opaque,
                             bool all_notified, uint64_t expected);

/*
 * Begin a reset without a plan: the caller fills RAM, and describes that in the
 * info of each block of ram_reset_list_blocks(). ram_reset_finish() must
 * follow, as after ram_reset_begin().
 */
void ram_reset_begin_unplanned(void);

/*
 * Let @strategy make [@start, @start + @len) of @blk zero, after the parts that
 * exist already; clear it in place if @strategy is NULL.  For @plan of a
 * RamResetClass.
 */
void ram_reset_add_part(RamResetBlock *blk, uint64_t start, uint64_t len,
                        RamResetClass *strategy);

/*
 * @failed was tried on @blk and failed with -errno @ret: warn once for each
 * object, count it, and make it the reason.  Call this once for each block and
 * load.
 */
void ram_reset_note_fallback(RamResetBlock *blk, const char *failed, int ret);

#endif
