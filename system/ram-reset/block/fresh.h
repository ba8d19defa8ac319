/*
 * RAM reset: fresh memory in the place of a block's
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef RAM_RESET_BLOCK_FRESH_H
#define RAM_RESET_BLOCK_FRESH_H

#include "system/ram-reset/block/block.h"

/* Why that must not be done to @blk, a sentence to be freed; NULL if it may */
char *ram_reset_fresh_refusal(const RamResetBlock *blk);

/*
 * Do it.  All of @blk reads zero then, and is preallocated if it was.  Block
 * drivers are notified that the memory goes and comes.
 *
 * Returns: 0, or -errno; the block then has what it had, or zeros
 */
int ram_reset_fresh(RamResetBlock *blk);

/* What QEMU has mapped for @blk, which may be more than is in use */
PrimMap ram_reset_block_whole_map(const RamResetBlock *blk);

/* All that ram_block_add() and a memory backend have asked of the kernel */
void ram_reset_advise_as_before(RAMBlock *rb, const PrimMap *map);

/* Nothing is mapped any more where block @name was: there is no way on */
G_NORETURN void ram_reset_die_without_memory(const char *name);

#endif
