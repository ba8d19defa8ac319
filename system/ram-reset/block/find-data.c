/*
 * RAM reset: find the parts of a block that may hold data
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/bitmap.h"
#include "system/ram-reset/block/find-data.h"
#include "system/ram-reset/block/overlay-map.h"
#include "system/ram-reset/prim/ranges.h"

/*
 * Ask for all ranges at once: finding the end of data that continues to the end
 * of a large file takes long, and would be repeated for each piece.
 */
static GArray *ask_kernel(const RamResetBlock *blk, PrimBacking backing,
                          uint64_t start, uint64_t end, bool *certain)
{
    g_autofree PrimDataIter *it = g_new(PrimDataIter, 1);
    GArray *data = prim_ranges_new();

    *certain = prim_data_begin(it, &blk->map, backing, start, end);
    while (prim_data_next(it, &start, &end)) {
        prim_ranges_add(data, start, end, 0);
    }
    prim_data_end(it);
    return data;
}

static int data_by_start(const void *a, const void *b)
{
    uint64_t x = ((const PrimRange *)a)->start;
    uint64_t y = ((const PrimRange *)b)->start;

    return x < y ? -1 : x > y;
}

/*
 * For a block that is mapped from a template: the pages in our page table, and
 * the mapped ranges, whose pages may be missing there
 */
static GArray *find_in_mapped(const RamResetBlock *blk, const GArray *runs,
                              uint64_t start, uint64_t end, bool *certain)
{
    g_autoptr(GArray) data = ask_kernel(blk, PRIM_PRIVATE_ZERO, start, end,
                                        certain);
    GArray *merged = prim_ranges_new();

    prim_ranges_add_within(data, runs, start, end);
    g_array_sort(data, data_by_start);
    prim_ranges_add_within(merged, data, start, end);
    return merged;
}

/* Find data as if @blk had @backing */
static GArray *find_as(const RamResetBlock *blk, PrimBacking backing,
                       uint64_t start, uint64_t end, bool *certain)
{
    g_autoptr(GArray) runs = overlay_map_copy(blk->rb->host, blk->rb);
    bool unused;

    certain = certain ?: &unused;
    return runs ? find_in_mapped(blk, runs, start, end, certain)
                : ask_kernel(blk, backing, start, end, certain);
}

GArray *ram_reset_find_data(const RamResetBlock *blk, uint64_t start,
                            uint64_t end, bool *certain)
{
    return find_as(blk, blk->backing, start, end, certain);
}

GArray *ram_reset_find_populated(const RamResetBlock *blk, uint64_t start,
                                 uint64_t end)
{
    GArray *part;

    if (!blk->data) {
        return ram_reset_find_data(blk, start, end, NULL);
    }
    part = prim_ranges_new();
    prim_ranges_add_within(part, blk->data, start, end);
    return part;
}

GArray *ram_reset_guess_populated(const RamResetBlock *blk)
{
    return find_as(blk, PRIM_PRIVATE_ZERO, 0, blk->map.len, NULL);
}

GArray *ram_reset_find_content(const RamResetBlock *blk)
{
    GArray *ranges;
    uint64_t at = 0;

    if (!blk->known) {
        return ram_reset_find_data(blk, 0, blk->map.len, NULL);
    }
    ranges = prim_ranges_new();
    while (at < blk->map.len) {
        uint64_t start = at + zeromap_run(blk->known, at, blk->map.len - at);

        at = start + zeromap_gap(blk->known, start, blk->map.len - start);
        prim_ranges_add(ranges, start, at, 0);
    }
    return ranges;
}

/* A bit for each target page with a part of @data; ranges may be smaller */
static unsigned long *data_bits(const RamResetBlock *blk, const GArray *data)
{
    uint64_t page = qemu_target_page_size();
    unsigned long *bits = bitmap_new(blk->map.len / page);

    for (unsigned i = 0; i < data->len; i++) {
        PrimRange range = g_array_index(data, PrimRange, i);
        uint64_t end = range.start + range.len;

        bitmap_set(bits, range.start / page,
                   DIV_ROUND_UP(end, page) - range.start / page);
    }
    return bits;
}

unsigned long *ram_reset_find_content_bits(const RamResetBlock *blk)
{
    g_autoptr(GArray) content = ram_reset_find_content(blk);

    return data_bits(blk, content);
}

unsigned long *ram_reset_find_present(const RamResetBlock *blk)
{
    g_autoptr(GArray) data = ram_reset_find_data(blk, 0, blk->map.len, NULL);

    return data_bits(blk, data);
}

ZeroMap *ram_reset_find_unpopulated(const RamResetBlock *blk)
{
    ZeroMap *zero = zeromap_new(blk->map.len, qemu_target_page_bits());
    g_autoptr(GArray) data = NULL;
    uint64_t at = 0;
    bool certain;

    data = ram_reset_find_data(blk, 0, blk->map.len, &certain);
    for (unsigned i = 0; i < data->len; i++) {
        PrimRange range = g_array_index(data, PrimRange, i);

        zeromap_mark(zero, at, range.start - at);
        at = range.start + range.len;
    }
    if (certain) {
        zeromap_mark(zero, at, blk->map.len - at);
    }
    return zero;
}
