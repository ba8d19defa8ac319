/*
 * Which pages of a RAM block are known to read as zero
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "system/ram-reset/block/zeromap.h"

#define WORD_BITS 64

struct ZeroMap {
    uint64_t size;
    unsigned page_bits;
    uint64_t words[];
};

ZeroMap *zeromap_new(uint64_t size, unsigned page_bits)
{
    uint64_t pages = size >> page_bits;
    ZeroMap *map = g_malloc0(sizeof(*map) + (pages / WORD_BITS + 1) *
                                            sizeof(uint64_t));

    map->size = pages << page_bits;
    map->page_bits = page_bits;
    return map;
}

void zeromap_free(ZeroMap *map)
{
    g_free(map);
}

/* The bits of page @first's word that lie in [@first, @end) */
static uint64_t word_mask(uint64_t first, uint64_t end)
{
    uint64_t mask = ~UINT64_C(0) << (first % WORD_BITS);

    if (end / WORD_BITS == first / WORD_BITS) {
        mask &= (UINT64_C(1) << (end % WORD_BITS)) - 1;
    }
    return mask;
}

/* The first page after @first that begins a new word, but at most @end */
static uint64_t word_next(uint64_t first, uint64_t end)
{
    return MIN(end, (first | (WORD_BITS - 1)) + 1);
}

/* The end of a byte range, cut to the map; false if nothing of it is left */
static bool clip(const ZeroMap *map, uint64_t start, uint64_t len,
                 uint64_t *end)
{
    if (start >= map->size || !len) {
        return false;
    }
    *end = start + MIN(len, map->size - start);
    return true;
}

void zeromap_mark(ZeroMap *map, uint64_t start, uint64_t len)
{
    uint64_t round = (UINT64_C(1) << map->page_bits) - 1;
    uint64_t end, i;

    if (!clip(map, start, len, &end)) {
        return;
    }
    end >>= map->page_bits;
    for (i = (start + round) >> map->page_bits; i < end;
         i = word_next(i, end)) {
        map->words[i / WORD_BITS] |= word_mask(i, end);
    }
}

void zeromap_forget(ZeroMap *map, uint64_t start, uint64_t len)
{
    uint64_t round = (UINT64_C(1) << map->page_bits) - 1;
    uint64_t end, i;

    if (!clip(map, start, len, &end)) {
        return;
    }
    end = (end + round) >> map->page_bits;
    for (i = start >> map->page_bits; i < end; i = word_next(i, end)) {
        map->words[i / WORD_BITS] &= ~word_mask(i, end);
    }
}

bool zeromap_known(const ZeroMap *map, uint64_t start, uint64_t len)
{
    uint64_t round = (UINT64_C(1) << map->page_bits) - 1;
    uint64_t end, i;

    if (!clip(map, start, len, &end) || end - start != len) {
        return false;
    }
    end = (end + round) >> map->page_bits;
    for (i = start >> map->page_bits; i < end; i = word_next(i, end)) {
        uint64_t mask = word_mask(i, end);

        if ((map->words[i / WORD_BITS] & mask) != mask) {
            return false;
        }
    }
    return true;
}

/* How many pages from @first to @end have bits that all equal @known */
static uint64_t equal_pages(const ZeroMap *map, uint64_t first, uint64_t end,
                            bool known)
{
    uint64_t i;

    for (i = first; i < end; i = word_next(i, end)) {
        uint64_t word = map->words[i / WORD_BITS];
        uint64_t other = (known ? ~word : word) & word_mask(i, end);

        if (other) {
            i = i / WORD_BITS * WORD_BITS + __builtin_ctzll(other);
            break;
        }
    }
    return i - first;
}

uint64_t zeromap_run(const ZeroMap *map, uint64_t start, uint64_t max)
{
    uint64_t end;

    if (!clip(map, start, max, &end)) {
        return 0;
    }
    return equal_pages(map, start >> map->page_bits, end >> map->page_bits,
                       true) << map->page_bits;
}

uint64_t zeromap_gap(const ZeroMap *map, uint64_t start, uint64_t max)
{
    uint64_t end, gap;

    if (!clip(map, start, max, &end)) {
        return max;
    }
    gap = equal_pages(map, start >> map->page_bits, end >> map->page_bits,
                      false) << map->page_bits;
    return start + gap == end ? max : gap;
}
