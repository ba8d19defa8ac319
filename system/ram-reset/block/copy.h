/*
 * The copy of a RAM block that a snapshot has, and restoring it
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef RAM_RESET_BLOCK_COPY_H
#define RAM_RESET_BLOCK_COPY_H

#include "system/ram-reset/prim/prim.h"

/*
 * A copy of the pages of a block that are not zero.  It lies in memory with the
 * block's layout, or is mapped from a file.  All other pages are zero in it,
 * and need no memory.
 *
 * Bitmaps have a bit for each page of the block, bit 0 of word 0 for the first
 * page, and words of unsigned long.  A bitmap from the caller ends with the
 * word of the last page, and has no bits beyond it.
 *
 * No locking, except for ram_copy_restore(), see there.
 */
typedef struct RamCopy RamCopy;

/*
 * @len: bytes, a multiple of @page_size.  NULL with errno set if there is no
 * memory.
 */
RamCopy *ram_copy_new(uint64_t len, size_t page_size);

/*
 * A copy in the @room bytes of @fd from @offset on; the file may be closed
 * afterwards.  @runs: array of PrimRange, in whole pages: the stored parts of
 * the @len bytes.  Nothing can be added to it.  NULL with errno set if it
 * cannot be mapped.
 */
RamCopy *ram_copy_of_file(int fd, uint64_t offset, uint64_t room, uint64_t len,
                          size_t page_size, const GArray *runs);

void ram_copy_free(RamCopy *t);

/*
 * Copy the pages of [@start, @end) that are not zero; @host is the start of the
 * block.  Both are multiples of the page size.  The range must not contain
 * pages that were stored before and are zero now.
 */
void ram_copy_add(RamCopy *t, const uint8_t *host,
                  uint64_t start, uint64_t end);

/*
 * Make @pages of a new copy the stored ones.  Their content is not there yet:
 * it must not be used before it has been put in ram_copy_room(), with the
 * block's layout, and ram_copy_has_read() was called.  False if there is no
 * memory.
 */
bool ram_copy_expect(RamCopy *t, const unsigned long *pages);
uint8_t *ram_copy_room(RamCopy *t);
void ram_copy_has_read(RamCopy *t, const unsigned long *pages);

/*
 * Set @found, which may be NULL, to the pages of @among without @except that are
 * stored and not read yet; returns their number, and if that is 0, @found may
 * not be set.  @among: NULL for all pages; @except: NULL for none.
 */
uint64_t ram_copy_find_unread(const RamCopy *t, const unsigned long *among,
                              const unsigned long *except, unsigned long *found);

/* Whether page number @page is one of them */
bool ram_copy_is_unread(const RamCopy *t, uint64_t page);

/*
 * Append the pages of [@start, @end) at @host that are not zero to @runs, an
 * array of PrimRange.
 */
void ram_copy_find_runs(const uint8_t *host, uint64_t start, uint64_t end,
                        size_t page_size, GArray *runs);

/* Number of bytes stored */
uint64_t ram_copy_size(const RamCopy *t);

/* The stored pages, with the block's layout; other pages must not be read */
const uint8_t *ram_copy_bytes(const RamCopy *t);

/* Number of words in a bitmap */
size_t ram_copy_words(const RamCopy *t);

/* The stored pages */
const unsigned long *ram_copy_stored(const RamCopy *t);

/* Whether page number @page at @host is equal to the copy's */
bool ram_copy_equals(const RamCopy *t, const uint8_t *host, uint64_t page);

/*
 * Pages that were dirty in two calls of ram_copy_restore() in a row: protecting
 * them against writing again costs the guest more than copying them costs us.
 * A page leaves this bitmap when a sample finds it unchanged.
 */
const unsigned long *ram_copy_untracked(const RamCopy *t);

/*
 * Numbers of pages.  @cold: dirty pages that were not untracked, each of which
 * has cost the guest a fault; @stale: pages that are not untracked any more;
 * @untracked: untracked pages in the given words; @compared: pages that
 * ram_copy_compare() has compared
 */
typedef struct RamCopyCounts {
    uint64_t dirty, copied, cleared, cold, stale, untracked, compared;
} RamCopyCounts;

/*
 * Restore the pages at @host whose bits are set in @dirty from the copy.  Only
 * words [@first, @last) of the bitmap are used: several threads may work on
 * words of their own, each with its own @counts, which are added to.
 *
 * @elsewhere: pages in @dirty that have another content than the copy's, which
 *     the caller restores; they are only counted, as dirty.  NULL if there are
 *     none
 * @turn: rises from load to load, and selects the untracked pages to be sampled
 * @leave_zeros: pages that are zero in the copy are only counted, as cleared;
 *     see ram_copy_zeros()
 */
void ram_copy_restore(RamCopy *t, uint8_t *host,
                      const unsigned long *dirty,
                      const unsigned long *elsewhere, size_t first, size_t last,
                      unsigned turn, bool leave_zeros, RamCopyCounts *counts);

/*
 * Clear the bits in @dirty of pages that are zero in the copy and not set in
 * @present: these pages read as zero already.
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
 * The same for pages that are not known to be dirty.  It compares stored pages,
 * and pages whose bits are set in @present; all other pages must read as zero.
 * @present: NULL for all pages.  Leaves out pages in @elsewhere, which may be
 * NULL.  A page that differs is counted as dirty, and
 * its bit is set in @differing, which may be NULL.
 */
void ram_copy_compare(const RamCopy *t, uint8_t *host,
                      const unsigned long *present,
                      const unsigned long *elsewhere, size_t first, size_t last,
                      unsigned long *differing, RamCopyCounts *counts);

#endif
