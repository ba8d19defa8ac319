/*
 * RAM reset: replace a block's memory by fresh memory
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef RAM_RESET_BLOCK_FRESH_H
#define RAM_RESET_BLOCK_FRESH_H

#include "system/ram-reset/block/block.h"

/* Whether @blk may get fresh memory */
bool ram_reset_fresh_is_allowed(const RamResetBlock *blk, Error **errp);

/*
 * Replace the memory.  All of @blk then reads as zero, and is preallocated if
 * it was before.  Block drivers are notified that the memory is removed and
 * added.
 *
 * Returns: 0, or -errno; the block then has its old content, or zeros
 */
int ram_reset_fresh(RamResetBlock *blk);

/* QEMU's mapping for @blk, which may be larger than the part in use */
PrimMap ram_reset_block_whole_map(const RamResetBlock *blk);

/*
 * Give the kernel the advice that ram_block_add() and the memory backend gave
 */
void ram_reset_advise_as_before(RAMBlock *rb, const PrimMap *map);

/* There is no memory at block @name any more: QEMU must exit */
G_NORETURN void ram_reset_die_without_memory(const char *name);

#endif
