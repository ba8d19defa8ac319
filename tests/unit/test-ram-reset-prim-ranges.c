/*
 * Arrays of ranges: joined, and cut
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "system/ram-reset/prim/ranges.h"

static void expect(const GArray *ranges, const PrimRange *want, unsigned nr)
{
    g_assert_cmpuint(ranges->len, ==, nr);
    for (unsigned i = 0; i < nr; i++) {
        const PrimRange *r = &g_array_index(ranges, PrimRange, i);

        g_assert_cmpuint(r->start, ==, want[i].start);
        g_assert_cmpuint(r->len, ==, want[i].len);
    }
}

static void test_add(void)
{
    const PrimRange joined[] = { { 10, 20 }, { 31, 4 }, { 0, 5 }, { 8, 22 } };
    g_autoptr(GArray) ranges = prim_ranges_new();

    prim_ranges_add(ranges, 5, 5, 0);
    expect(ranges, NULL, 0);
    prim_ranges_add(ranges, 10, 20, 0);
    prim_ranges_add(ranges, 20, 30, 0);
    prim_ranges_add(ranges, 12, 15, 0);
    prim_ranges_add(ranges, 31, 35, 0);
    /* A range that begins before the last one is not joined */
    prim_ranges_add(ranges, 0, 5, 0);
    prim_ranges_add(ranges, 8, 30, 2);
    expect(ranges, joined, 4);
    g_assert_cmpuint(prim_ranges_size(ranges), ==, 51);
}

static void test_gap(void)
{
    const PrimRange joined[] = { { 0, 28 }, { 31, 4 } };
    g_autoptr(GArray) ranges = prim_ranges_new();

    prim_ranges_add(ranges, 0, 5, 2);
    prim_ranges_add(ranges, 7, 28, 2);
    prim_ranges_add(ranges, 31, 35, 2);
    expect(ranges, joined, 2);
}

static void test_within(void)
{
    const PrimRange cut[] = { { 15, 5 }, { 30, 10 }, { 50, 1 } };
    g_autoptr(GArray) from = prim_ranges_new();
    g_autoptr(GArray) ranges = prim_ranges_new();

    for (uint64_t at = 10; at < 100; at += 20) {
        prim_ranges_add(from, at, at + 10, 0);
    }
    prim_ranges_add_within(ranges, from, 15, 51);
    expect(ranges, cut, 3);
}

static void test_cut(void)
{
    PrimRange rest = { 5, 20 };
    const uint64_t want[] = { 3, 8, 8, 1 };
    uint64_t at = rest.start;

    for (unsigned i = 0; i < G_N_ELEMENTS(want); i++) {
        PrimRange piece = prim_range_cut(&rest, 8);

        g_assert_cmpuint(piece.start, ==, at);
        g_assert_cmpuint(piece.len, ==, want[i]);
        at += piece.len;
    }
    g_assert_cmpuint(rest.len, ==, 0);
}

/* 100 ranges of 10 bytes, with gaps of 5 and, behind each tenth, of 30 */
static GArray *scattered(void)
{
    GArray *ranges = prim_ranges_new();
    uint64_t at = 0;

    for (unsigned i = 1; i <= 100; i++) {
        prim_ranges_add(ranges, at, at + 10, 0);
        at += i % 10 ? 15 : 40;
    }
    return ranges;
}

static void test_join(void)
{
    g_autoptr(GArray) few = prim_ranges_join(scattered(), 100, 4, 2);
    g_autoptr(GArray) joined = prim_ranges_join(scattered(), 10, 4, 2);
    g_autoptr(GArray) one = prim_ranges_join(scattered(), 1, 4, 2);

    /* No more than wanted: nothing is joined */
    g_assert_cmpuint(few->len, ==, 100);
    /* Gaps of less than 4, then of less than 8 bytes */
    g_assert_cmpuint(joined->len, ==, 10);
    g_assert_cmpuint(prim_ranges_size(joined), ==, 10 * 145);
    g_assert_cmpuint(g_array_index(joined, PrimRange, 1).start, ==, 175);
    /* Twice 1,000 bytes are allowed */
    g_assert_cmpuint(one->len, ==, 1);
    g_assert_cmpuint(prim_ranges_size(one), ==, 1720);
}

static void test_join_limit(void)
{
    g_autoptr(GArray) ranges = prim_ranges_new();

    prim_ranges_add(ranges, 0, 10, 0);
    prim_ranges_add(ranges, 13, 23, 0);
    prim_ranges_add(ranges, 100, 110, 0);
    ranges = prim_ranges_join(g_steal_pointer(&ranges), 1, 4, 2);
    g_assert_cmpuint(ranges->len, ==, 2);
    g_assert_cmpuint(prim_ranges_size(ranges), ==, 33);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/ram-reset/prim/ranges/add", test_add);
    g_test_add_func("/ram-reset/prim/ranges/gap", test_gap);
    g_test_add_func("/ram-reset/prim/ranges/within", test_within);
    g_test_add_func("/ram-reset/prim/ranges/cut", test_cut);
    g_test_add_func("/ram-reset/prim/ranges/join", test_join);
    g_test_add_func("/ram-reset/prim/ranges/join-limit", test_join_limit);
    return g_test_run();
}
