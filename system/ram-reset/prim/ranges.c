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

static GArray *ranges_join_once(const GArray *ranges, uint64_t gap)
{
    GArray *joined = prim_ranges_new();

    for (unsigned i = 0; i < ranges->len; i++) {
        PrimRange range = g_array_index(ranges, PrimRange, i);

        prim_ranges_add(joined, range.start, range.start + range.len, gap - 1);
    }
    return joined;
}

GArray *prim_ranges_join(GArray *ranges, unsigned max, uint64_t gap,
                         unsigned times)
{
    const uint64_t most = times * prim_ranges_size(ranges);

    for (; ranges->len > max; gap *= 2) {
        GArray *joined = ranges_join_once(ranges, gap);

        if (prim_ranges_size(joined) > most) {
            g_array_unref(joined);
            break;
        }
        g_array_unref(ranges);
        ranges = joined;
    }
    return ranges;
}
