/*
 * The map of the pages of a RAM block that are known to be zero
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef RAM_RESET_BLOCK_ZEROMAP_H
#define RAM_RESET_BLOCK_ZEROMAP_H

/*
 * A page is either known to be zero or not known; there is no "known not to be
 * zero". A new map knows nothing.  Ranges are given in bytes.  Marking rounds
 * inwards (only whole pages of the range become known); forgetting and asking
 * round outwards: rounding can only lose knowledge.  Bytes beyond the map are
 * never known.
 *
 * No locking: only one thread at a time may use a map.
 */
typedef struct ZeroMap ZeroMap;

/* @size: bytes; @page_bits: log2 of the page size.  Free with zeromap_free() */
ZeroMap *zeromap_new(uint64_t size, unsigned page_bits);
void zeromap_free(ZeroMap *map);

/* Every whole page of [@start, @start + @len) is zero from now on. */
void zeromap_mark(ZeroMap *map, uint64_t start, uint64_t len);

/* Something may have been written to [@start, @start + @len). */
void zeromap_forget(ZeroMap *map, uint64_t start, uint64_t len);

/* True if @len is not 0 and all of [@start, @start + @len) is known zero. */
bool zeromap_known(const ZeroMap *map, uint64_t start, uint64_t len);

/*
 * The number of bytes from @start on that are known zero, but at most @max.
 * @start and @max: multiples of the page size.
 */
uint64_t zeromap_run(const ZeroMap *map, uint64_t start, uint64_t max);

/*
 * The number of bytes from @start on that are not known, but at most @max.
 * Bytes beyond the map are not known.  @start and @max: as above.
 */
uint64_t zeromap_gap(const ZeroMap *map, uint64_t start, uint64_t max);

#endif
