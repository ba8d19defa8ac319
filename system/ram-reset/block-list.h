/*
 * RAM reset: all RAM blocks that a snapshot has
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef RAM_RESET_BLOCK_LIST_H
#define RAM_RESET_BLOCK_LIST_H

#include "system/ram-reset/block/block.h"

/**
 * RamResetBlockList: all migratable blocks, in QEMU's order
 *
 * @bytes: that they have together
 */
typedef struct RamResetBlockList {
    RamResetBlock *blocks;
    unsigned nr;
    uint64_t bytes;
} RamResetBlockList;

/*
 * There is one list at most, which this makes, or adds a reference to: in the
 * course of a reset it is the reset's, with its plan and what is known of each
 * block.  Otherwise blocks have neither, and @info is thrown away.  BQL held.
 *
 * Blocks are held as long as there is a reference: the BQL may be released
 * between, as it is to synchronize a dirty ring, and memory that is unplugged
 * goes when RCU's thread gets it.
 */
RamResetBlockList *ram_reset_list_blocks(void);
void ram_reset_block_list_unref(RamResetBlockList *list);

G_DEFINE_AUTOPTR_CLEANUP_FUNC(RamResetBlockList, ram_reset_block_list_unref)

/* Whether there is one */
bool ram_reset_blocks_are_listed(void);

#endif
