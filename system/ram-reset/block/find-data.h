/*
 * RAM reset: find the parts of a block that may hold data
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef RAM_RESET_BLOCK_FIND_DATA_H
#define RAM_RESET_BLOCK_FIND_DATA_H

#include "system/ram-reset/block/block.h"

/*
 * Data is memory that may not be zero.  Memory outside of an answer reads as
 * zero, and may be absent: reading it would allocate it.  Memory in an answer
 * may still be zero.  Finding data populates nothing.
 *
 * An array is one of PrimRange in bytes from the block's start; the ranges are
 * not empty, disjoint, and in rising order.  They end where the kernel says,
 * which may be within a target page.  The caller frees all results: arrays by
 * g_array_unref(), a bitmap by g_free(), a map by zeromap_free().
 *
 * The BQL must be held; an answer is valid until somebody writes to the memory.
 */

/*
 * The parts of [@start, @end) that may hold data now.
 *
 * @certain: set to whether the kernel knows; may be NULL.  If it does not know,
 *     all of the range counts as data.
 */
GArray *ram_reset_find_data(const RamResetBlock *blk, uint64_t start,
                            uint64_t end, bool *certain);

/* @blk->data, found before the load, if it is set; else as found now */
GArray *ram_reset_find_populated(const RamResetBlock *blk, uint64_t start,
                                 uint64_t end);

/*
 * The pages of @blk in our page table: only a guess if memory is shared, since
 * other processes may have populated more
 */
GArray *ram_reset_guess_populated(const RamResetBlock *blk);

/*
 * The parts of @blk that are not known to be zero; during a load, as the load
 * knows
 */
GArray *ram_reset_find_content(const RamResetBlock *blk);

/* The same, as a bit for each target page of @blk */
unsigned long *ram_reset_find_content_bits(const RamResetBlock *blk);

/* A bit for each target page of @blk that may hold data */
unsigned long *ram_reset_find_present(const RamResetBlock *blk);

/* The opposite: the target pages of @blk that hold no data */
ZeroMap *ram_reset_find_unpopulated(const RamResetBlock *blk);

#endif
