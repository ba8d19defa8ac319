/*
 * The content of a RAM block that a snapshot has, and going back to it
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef RAM_RESET_BLOCK_COPY_H
#define RAM_RESET_BLOCK_COPY_H

#include "system/ram-reset/prim/prim.h"

/*
 * A copy of those pages of a block that are not zero, in memory with the
 * block's layout, or mapped from a file.  All other pages are zero in it, and
 * take none.
 *
 * Bitmaps have a bit for each page of the block, bit 0 of word 0 for the
 * first, and words of unsigned long; those given by the caller end with the
 * word of the last page, and have no bits beyond it.
 *
 * No locking, other than what ram_copy_restore() says.
 */
typedef struct RamCopy RamCopy;

/*
 * @len: bytes, a multiple of @page_size.  NULL with errno set if memory cannot
 * be had.
 */
RamCopy *ram_copy_new(uint64_t len, size_t page_size);

/*
 * What @fd has from @offset on, in @room bytes; the file may be closed
 * afterwards.  @runs: of PrimRange, in whole pages: what is stored of the @len
 * bytes.  Nothing can be added to it.  NULL with errno set if it cannot be
 * mapped.
 */
RamCopy *ram_copy_of_file(int fd, uint64_t offset, uint64_t room, uint64_t len,
                          size_t page_size, const GArray *runs);

void ram_copy_free(RamCopy *t);

/*
 * Copy what of [@start, @end) at @host, the start of the block, is not zero.
 * Both are multiples of the page size.  Pages that were stored before and are
 * zero now must not be in the range.
 */
void ram_copy_add(RamCopy *t, const uint8_t *host,
                  uint64_t start, uint64_t end);

/*
 * Append to @runs, of PrimRange, those pages of [@start, @end) at @host that
 * are not zero.
 */
void ram_copy_find_runs(const uint8_t *host, uint64_t start, uint64_t end,
                        size_t page_size, GArray *runs);

/* How many bytes are stored */
uint64_t ram_copy_size(const RamCopy *t);

/* What is stored, with the block's layout; only that may be read */
const uint8_t *ram_copy_bytes(const RamCopy *t);

/* Words in a bitmap */
size_t ram_copy_words(const RamCopy *t);

/*
 * Pages that were dirty in two calls of ram_copy_restore() in a row: to protect
 * them against writing once more costs the guest more than copying them costs
 * us.  They leave this bitmap when a sample finds them unchanged.
 */
const unsigned long *ram_copy_untracked(const RamCopy *t);

/*
 * Pages.  @cold: of the dirty ones that were not untracked, so that the guest
 * has paid a fault for each; @stale: those that are untracked no longer;
 * @untracked: those that are, of the words that were given; @compared: those
 * that ram_copy_compare() has looked at
 */
typedef struct RamCopyCounts {
    uint64_t dirty, copied, cleared, cold, stale, untracked, compared;
} RamCopyCounts;

/*
 * Make the pages at @host whose bits are set in @dirty what they are in the
 * copy, but only those of words [@first, @last) of the bitmap: several
 * threads may do that for words of their own, each with its own @counts,
 * which are added to.
 *
 * @turn: rises from load to load, and says which of the untracked pages are
 *     sampled.
 * @leave_zeros: pages that are zero in the copy are only counted, as cleared;
 *     see ram_copy_zeros().
 */
void ram_copy_restore(RamCopy *t, uint8_t *host,
                      const unsigned long *dirty, size_t first, size_t last,
                      unsigned turn, bool leave_zeros, RamCopyCounts *counts);

/*
 * Take pages off @dirty that are zero in the copy and not set in @present:
 * those read zero anyway.
 */
void ram_copy_spare(const RamCopy *t, unsigned long *dirty,
                    const unsigned long *present);

/*
 * The next run of pages that are dirty, and zero in the copy, from byte @from
 * on; false if there is none.
 */
bool ram_copy_zeros(const RamCopy *t, const unsigned long *dirty,
                    uint64_t from, uint64_t *start, uint64_t *end);

/*
 * The same for pages of which it is not known whether they are dirty: those
 * that are stored, and those whose bits are set in @present; all others must
 * read zero.  @present: NULL for all pages.  What differs is counted as dirty,
 * and its bit set in @differing, which may be NULL.
 */
void ram_copy_compare(const RamCopy *t, uint8_t *host,
                      const unsigned long *present, size_t first, size_t last,
                      unsigned long *differing, RamCopyCounts *counts);

#endif
