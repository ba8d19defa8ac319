/*
 * RAM reset: the list of all RAM blocks that a snapshot has
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef RAM_RESET_BLOCK_LIST_H
#define RAM_RESET_BLOCK_LIST_H

#include "system/ram-reset/block/block.h"

/**
 * RamResetBlockList: all migratable blocks, in QEMU's order
 *
 * @bytes: size of all blocks together
 */
typedef struct RamResetBlockList {
    RamResetBlock *blocks;
    unsigned nr;
    uint64_t bytes;
} RamResetBlockList;

/*
 * There is at most one list.  This makes it, or adds a reference to it.  During
 * a reset, the list belongs to the reset: blocks have their plan and their
 * known zero pages.  Otherwise they have neither, and @info is dropped.  BQL
 * held.
 *
 * The blocks live as long as a reference.  The BQL may be released meanwhile,
 * for instance to synchronize a dirty ring; RCU's thread then frees memory that
 * has been unplugged.
 */
RamResetBlockList *ram_reset_list_blocks(void);
void ram_reset_block_list_unref(RamResetBlockList *list);

G_DEFINE_AUTOPTR_CLEANUP_FUNC(RamResetBlockList, ram_reset_block_list_unref)

/* Whether there is a list */
bool ram_reset_blocks_are_listed(void);

#endif
