/*
 * Arrays of ranges: joined, and cut
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "system/ram-reset/prim/ranges.h"

GArray *prim_ranges_new(void)
{
    return g_array_new(false, false, sizeof(PrimRange));
}

void prim_ranges_add(GArray *ranges, uint64_t start, uint64_t end,
                     uint64_t gap)
{
    PrimRange added = { start, end - start }, *last;

    last = ranges->len ? &g_array_index(ranges, PrimRange, ranges->len - 1)
                       : NULL;
    if (start >= end) {
        return;
    }
    if (last && start >= last->start &&
        start - last->start <= last->len + gap) {
        last->len = MAX(last->len, end - last->start);
    } else {
        g_array_append_val(ranges, added);
    }
}

void prim_ranges_add_within(GArray *ranges, const GArray *from, uint64_t start,
                            uint64_t end)
{
    for (unsigned i = 0; i < from->len; i++) {
        PrimRange range = g_array_index(from, PrimRange, i);

        prim_ranges_add(ranges, MAX(range.start, start),
                        MIN(range.start + range.len, end), 0);
    }
}

uint64_t prim_ranges_size(const GArray *ranges)
{
    uint64_t bytes = 0;

    for (unsigned i = 0; i < ranges->len; i++) {
        bytes += g_array_index(ranges, PrimRange, i).len;
    }
    return bytes;
}
