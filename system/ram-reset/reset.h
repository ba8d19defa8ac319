/*
 * RAM reset: the course of one reset, for those who take part in it
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef RAM_RESET_RESET_H
#define RAM_RESET_RESET_H

#include "system/ram-reset-load.h"
#include "system/ram-reset/block/block.h"

/* Whether @blk is to be left as it is; true of each that is ignored */
typedef bool RamResetLeftOut(const RamResetBlock *blk, void *opaque);

/* As ram_reset_begin(), but also without the blocks that @left_out names */
void ram_reset_begin_without(RamResetLeftOut *left_out, void *opaque,
                             bool all_notified, uint64_t expected);

/*
 * Begin a reset without a plan: the caller makes RAM what it is to be, and says
 * in the info of each block of ram_reset_list_blocks() what it has done.
 * ram_reset_finish() follows, as it follows ram_reset_begin().
 */
void ram_reset_begin_unplanned(void);

/*
 * Have [@start, @start + @len) of @blk made zero by @strategy, after the parts
 * that there are already; cleared in place if that is NULL.  For @plan of a
 * RamResetClass.
 */
void ram_reset_add_part(RamResetBlock *blk, uint64_t start, uint64_t len,
                        RamResetClass *strategy);

/*
 * What was to be done to @blk by @failed has failed with -errno @ret: warn once
 * an object, count it, and say so as the reason.  Once a block and load.
 */
void ram_reset_note_fallback(RamResetBlock *blk, const char *failed, int ret);

#endif
