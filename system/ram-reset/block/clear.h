/*
 * RAM reset: clearing memory where it is
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef RAM_RESET_BLOCK_CLEAR_H
#define RAM_RESET_BLOCK_CLEAR_H

#include "system/ram-reset/block/block.h"

/*
 * Memory stays where it is, and what reads zero is not written: to clear what
 * the host has populated never makes the guest's memory grow.
 */

/*
 * What may have to be cleared, in bytes from a RAM block's start; within one
 * RAM_RESET_CHUNK.  @cleared: bytes that were not zero
 */
typedef struct RamResetPiece {
    uint64_t start, len, cleared;
} RamResetPiece;

/*
 * Append [@start, @end) to @pieces, without what @blk->known (if there is
 * such) does not have as zero.
 */
void ram_reset_add_pieces(const RamResetBlock *blk, GArray *pieces,
                          uint64_t start, uint64_t end);

/*
 * Clear what is not zero in @pieces of the memory at @host, in @threads
 * threads.  It should be populated, or will be.  Returns bytes cleared.
 */
uint64_t ram_reset_clear_pieces(uint8_t *host, GArray *pieces,
                                unsigned threads);

/* The same for @blk, where it is counted */
void ram_reset_clear_block(RamResetBlock *blk, GArray *pieces,
                           unsigned threads);

/*
 * Clear what of [@start, @start + @len) of @blk may hold data, as above.  It
 * serves any block, and cannot fail.
 */
void ram_reset_clear_in_place(RamResetBlock *blk, uint64_t start, uint64_t len,
                              unsigned threads);

#endif
