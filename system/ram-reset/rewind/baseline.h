/*
 * RAM reset: the baseline, a copy of RAM as a snapshot has it
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef RAM_RESET_REWIND_BASELINE_H
#define RAM_RESET_REWIND_BASELINE_H

#include "system/ram-reset-rewind.h"
#include "system/ram-reset/block-list.h"
#include "system/ram-reset/block/block.h"
#include "system/ram-reset/template/file.h"

/**
 * BaselineBlock: the content of a RAM block in the snapshot
 *
 * @name, @host, @len: name, address and bytes of @rb when @copy was made; if
 *     they differ, this is another block
 * @copy: NULL if the snapshot excludes the block (x-ignore-shared)
 * @compared: the dirty log may lack writes to the block, so that a rewind
 *     compares all of it unless it is @watched
 * @watched: the kernel reports the writes to the block
 * @unwatched: the reason why the block is not @watched; NULL before the first
 *     attempt
 * @untracked: number of untracked pages in @copy
 * @pending: pages that were in the log when a save cleared it, and in which RAM
 *     may differ from the position (points.h); NULL if there are none
 * @owner: the object that covers the block; NULL if none does
 */
typedef struct BaselineBlock {
    RAMBlock *rb;
    char *name;
    uint8_t *host;
    uint64_t len;
    RamCopy *copy;
    bool compared, watched;
    char *unwatched;
    uint64_t untracked;
    unsigned long *pending;
    RamReset *owner;
} BaselineBlock;

/*
 * Returns an array of BaselineBlock, which owns their copies; free it with
 * g_array_unref().
 */
GArray *baseline_new(void);

/**
 * baseline_block_blocker: the reason why @blk cannot be rewound
 *
 * Returns: a blocker, owned by the caller; NULL if it can be, or the snapshot
 *     excludes it
 */
RamResetBlocker *baseline_block_blocker(const RamResetBlock *blk);

/**
 * baseline_fits: whether @all, the array of baseline_new(), has the blocks of
 * @list as they are now
 */
bool baseline_fits(const GArray *all, const RamResetBlockList *list);

/**
 * baseline_is_of_all: whether @all has all migratable blocks as they are now
 *
 * Faster than baseline_fits(), and does not look at what a snapshot excludes.
 */
bool baseline_is_of_all(const GArray *all);

/**
 * baseline_add: append the present content of @blk to the baseline
 *
 * @all: the array of baseline_new()
 * @file: a template that RAM is equal to, used in place of a copy; NULL if
 *     there is none
 * @store: a store of the pages, which are not read yet; NULL: they are copied
 * @limit: largest size of the copies of all blocks, in bytes
 * @size: size of the copies so far, in bytes; increased
 *
 * BQL held, vCPUs stopped, I/O drained.
 *
 * Returns: the blocker, owned by the caller, if the block cannot be rewound or
 *     the copies exceed @limit; NULL on success
 */
RamResetBlocker *baseline_add(GArray *all, const RamResetBlock *blk,
                              const TemplateFile *file,
                              RamResetPageStore *store, uint64_t limit,
                              uint64_t *size);

#endif
