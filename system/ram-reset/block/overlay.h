/*
 * RAM reset: memory that is mapped from a template
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef RAM_RESET_BLOCK_OVERLAY_H
#define RAM_RESET_BLOCK_OVERLAY_H

#include "system/ram-reset/block/block.h"

/*
 * What a snapshot has of a block can be a private mapping of a template: it
 * is read by nobody before the guest does, and copied page by page when it is
 * written to.  Everything else of the block is anonymous memory as before.
 *
 * What is discarded there would not read zero, but show the template.  So such
 * a block counts as PRIM_PRIVATE_FILE, ram_reset_find_data() knows of it, and
 * discards are made by ram_reset_discard().  Before a reset it becomes
 * anonymous memory once more.
 *
 * The rest has base pages at first, see base-pages.h.
 *
 * BQL held, other than by ram_reset_discard().  What both go by is in
 * overlay-map.h.
 */

/*
 * @fd: the file, in which the block begins at @offset; @page_size: what the
 * runs are in units of; @runs: of PrimRange, what the file has of the block
 */
typedef struct RamResetOverlay {
    int fd;
    uint64_t offset;
    size_t page_size;
    const GArray *runs;
} RamResetOverlay;

/* Why @blk cannot be mapped like that, to be freed; NULL if it can */
char *ram_reset_map_refusal(const RamResetBlock *blk,
                            const RamResetOverlay *from);

/*
 * Do it.  0, or -errno; the block then has anything, and may be mapped in part,
 * until ram_reset_begin() makes it zero.
 */
int ram_reset_map(RamResetBlock *blk, const RamResetOverlay *from);

/* Have anonymous memory for @blk again, which reads zero, if that may be */
void ram_reset_unmap(RamResetBlock *blk);

#endif
