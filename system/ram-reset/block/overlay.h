/*
 * RAM reset: map the memory of a block from a template
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef RAM_RESET_BLOCK_OVERLAY_H
#define RAM_RESET_BLOCK_OVERLAY_H

#include "system/ram-reset/block/block.h"

/*
 * The snapshot's part of a block can be a private mapping of a template: it is
 * not read before the guest reads it, and a page is copied when it is written
 * to.  The rest of the block is anonymous memory as before.
 *
 * A discarded page of that mapping would not read as zero, but show the
 * template.  So such a block counts as PRIM_PRIVATE_FILE, ram_reset_find_data()
 * takes it into account, and ram_reset_discard() does the discards.  Before a
 * reset it becomes anonymous memory again.
 *
 * The rest has base pages at first, see base-pages.h.
 *
 * BQL held, except by ram_reset_discard(). overlay-map.h is the table that both
 * use.
 */

/*
 * @fd: the file, in which the block begins at @offset; @page_size: unit of the
 * runs; @runs: array of PrimRange, the block's parts in the file
 */
typedef struct RamResetOverlay {
    int fd;
    uint64_t offset;
    size_t page_size;
    const GArray *runs;
} RamResetOverlay;

/* Whether @blk can be mapped in this way */
bool ram_reset_map_is_allowed(const RamResetBlock *blk,
                              const RamResetOverlay *from, Error **errp);

/*
 * Map the block.  0, or -errno: the block then has any content, and may be
 * mapped in part, until ram_reset_begin() makes it zero.
 */
int ram_reset_map(RamResetBlock *blk, const RamResetOverlay *from);

/* All parts of blocks that were mapped from @fd have become anonymous memory */
void ram_reset_map_ended(int fd);

/* Use anonymous memory for @blk again, which reads as zero, if possible */
void ram_reset_unmap(RamResetBlock *blk);

#endif
