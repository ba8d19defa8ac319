/*
 * RAM reset: clear memory in place
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef RAM_RESET_BLOCK_CLEAR_H
#define RAM_RESET_BLOCK_CLEAR_H

#include "system/ram-reset/block/block.h"

/*
 * Memory stays where it is, and only bytes that are not zero are written:
 * clearing populated memory never makes the guest's memory grow.
 */

/*
 * A piece that may have to be cleared, in bytes from a RAM block's start;
 * within one RAM_RESET_CHUNK.  @cleared: number of bytes that were not zero
 */
typedef struct RamResetPiece {
    uint64_t start, len, cleared;
} RamResetPiece;

/*
 * Append [@start, @end) to @pieces, without pages that @blk->known has as
 * zero.  @blk->known may be NULL.
 */
void ram_reset_add_pieces(const RamResetBlock *blk, GArray *pieces,
                          uint64_t start, uint64_t end);

/*
 * Clear @pieces of the memory at @host that are not zero, in @threads threads.
 * The memory should be populated, or will be.  Returns bytes cleared.
 */
uint64_t ram_reset_clear_pieces(uint8_t *host, GArray *pieces,
                                unsigned threads);

/* The same for @blk, and count it there */
void ram_reset_clear_block(RamResetBlock *blk, GArray *pieces,
                           unsigned threads);

/*
 * Clear the data in [@start, @start + @len) of @blk, as above.  This works for
 * any block, and cannot fail.
 */
void ram_reset_clear_in_place(RamResetBlock *blk, uint64_t start, uint64_t len,
                              unsigned threads);

#endif
