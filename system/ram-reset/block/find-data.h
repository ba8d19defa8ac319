/*
 * RAM reset: where a block may hold data
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef RAM_RESET_BLOCK_FIND_DATA_H
#define RAM_RESET_BLOCK_FIND_DATA_H

#include "system/ram-reset/block/block.h"

/*
 * Data is what may be other than zero.  What is not in an answer reads zero,
 * and may have no memory, which reading it would allocate; what is in it may be
 * zero all the same.  Nothing is populated by looking.
 *
 * An array is of PrimRange in bytes from the block's start, none of them empty,
 * in rising order and disjoint.  Its ranges end where the kernel says, which
 * need not be at target pages.  The caller frees all that is returned: arrays
 * by g_array_unref(), a bitmap by g_free(), a map by zeromap_free().
 *
 * With the BQL held; the answer holds as long as nobody writes to the memory.
 */

/*
 * What of [@start, @end) may hold data now.
 *
 * @certain: set to whether the kernel knows, and may be NULL.  If it does not,
 *     all of the range counts as data.
 */
GArray *ram_reset_find_data(const RamResetBlock *blk, uint64_t start,
                            uint64_t end, bool *certain);

/* As found before the load, if @blk->data has that, otherwise as it is now */
GArray *ram_reset_find_populated(const RamResetBlock *blk, uint64_t start,
                                 uint64_t end);

/*
 * What our page table has of all of @blk: no more than a guess where memory is
 * shared, since others may have populated more
 */
GArray *ram_reset_guess_populated(const RamResetBlock *blk);

/* What of all of @blk is not known to be zero; by a load, if one is going on */
GArray *ram_reset_find_content(const RamResetBlock *blk);

/* A bit for each target page of @blk that may hold data */
unsigned long *ram_reset_find_present(const RamResetBlock *blk);

/* The opposite: which target pages of @blk hold none */
ZeroMap *ram_reset_find_unpopulated(const RamResetBlock *blk);

#endif
