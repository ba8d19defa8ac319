/*
 * RAM reset: the baseline, what RAM had
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef RAM_RESET_REWIND_BASELINE_H
#define RAM_RESET_REWIND_BASELINE_H

#include "qapi/qapi-types-ram-reset.h"
#include "system/ram-reset/block/block.h"
#include "system/ram-reset/template/file.h"

/**
 * BaselineBlock: a RAM block as it was
 *
 * @host, @len: it is the same one as long as these are
 * @copy: NULL if the block is left alone (x-ignore-shared)
 * @compared: the dirty log does not tell all of it, so that it is compared
 *     unless it is @watched: the kernel tells
 * @unwatched: why not, if so; NULL before anybody has tried
 * @untracked: how many pages of @copy are
 * @owner: the object that covers it, NULL if none does
 */
typedef struct BaselineBlock {
    RAMBlock *rb;
    uint8_t *host;
    uint64_t len;
    RamCopy *copy;
    bool compared, watched;
    char *unwatched;
    uint64_t untracked;
    RamReset *owner;
} BaselineBlock;

/*
 * An array of BaselineBlock, which owns their copies; free it with
 * g_array_unref()
 */
GArray *baseline_new(void);

/**
 * baseline_add: make what @blk has now part of the baseline
 *
 * @file: a template that RAM is of, which then takes the place of a copy; NULL
 *     if there is none
 * @all: it is appended to that
 * @limit: how many bytes copies of all blocks may have
 * @size: how many are; added to
 *
 * Returns: the blocker, owned by the caller, if that is impossible, or too
 *     much; else NULL
 */
RamResetBlocker *baseline_add(GArray *all, const RamResetBlock *blk,
                              const TemplateFile *file, uint64_t limit,
                              uint64_t *size);

#endif
