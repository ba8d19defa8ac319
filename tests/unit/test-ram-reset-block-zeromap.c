/*
 * Unit tests for system/ram-reset/block/zeromap.c
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "system/ram-reset/block/zeromap.h"

#define BITS  12
#define PAGE  (UINT64_C(1) << BITS)

static void test_knows_nothing_at_first(void)
{
    ZeroMap *map = zeromap_new(100 * PAGE, BITS);

    for (unsigned i = 0; i < 100; i++) {
        g_assert_false(zeromap_known(map, i * PAGE, PAGE));
    }
    zeromap_free(map);
}

static void test_mark_rounds_inwards(void)
{
    ZeroMap *map = zeromap_new(100 * PAGE, BITS);

    zeromap_mark(map, 10 * PAGE + 1, 3 * PAGE);
    g_assert_false(zeromap_known(map, 10 * PAGE, PAGE));
    g_assert_true(zeromap_known(map, 11 * PAGE, 2 * PAGE));
    g_assert_false(zeromap_known(map, 13 * PAGE, 1));
    zeromap_free(map);
}

static void test_forget_rounds_outwards(void)
{
    ZeroMap *map = zeromap_new(100 * PAGE, BITS);

    zeromap_mark(map, 0, 100 * PAGE);
    zeromap_forget(map, 63 * PAGE + PAGE - 1, 2);
    g_assert_true(zeromap_known(map, 0, 63 * PAGE));
    g_assert_false(zeromap_known(map, 63 * PAGE, PAGE));
    g_assert_false(zeromap_known(map, 64 * PAGE, PAGE));
    g_assert_true(zeromap_known(map, 65 * PAGE, 35 * PAGE));
    zeromap_free(map);
}

static void test_beyond_the_end_is_unknown(void)
{
    ZeroMap *map = zeromap_new(64 * PAGE + 100, BITS);

    zeromap_mark(map, 0, UINT64_MAX);
    g_assert_true(zeromap_known(map, 0, 64 * PAGE));
    g_assert_false(zeromap_known(map, 64 * PAGE, 1));
    g_assert_false(zeromap_known(map, 63 * PAGE, 2 * PAGE));
    g_assert_false(zeromap_known(map, 1, UINT64_MAX));
    g_assert_false(zeromap_known(map, UINT64_MAX, 1));
    g_assert_false(zeromap_known(map, 0, 0));
    zeromap_forget(map, UINT64_MAX, UINT64_MAX);
    zeromap_forget(map, 64 * PAGE, PAGE);
    g_assert_true(zeromap_known(map, 0, 64 * PAGE));
    zeromap_free(map);
}

static void test_empty_map(void)
{
    ZeroMap *map = zeromap_new(0, BITS);

    zeromap_mark(map, 0, PAGE);
    zeromap_forget(map, 0, PAGE);
    g_assert_false(zeromap_known(map, 0, 1));
    zeromap_free(map);
}

/* Compare random byte ranges with a bool for each page */
static void test_random_against_a_model(void)
{
    const unsigned pages = 333;
    g_autofree bool *model = g_new0(bool, pages);
    ZeroMap *map = zeromap_new(pages * PAGE, BITS);
    GRand *rand = g_rand_new_with_seed(3);

    for (unsigned round = 0; round < 20000; round++) {
        uint64_t start = g_rand_int_range(rand, 0, pages * PAGE);
        uint64_t len = g_rand_int_range(rand, 1, 1 + (round % 3 ? 20 : 150) *
                                                     (int)PAGE);
        uint64_t end = MIN(start + len, pages * PAGE);
        bool all = start + len <= pages * PAGE;

        for (uint64_t i = start / PAGE; i * PAGE < end; i++) {
            switch (round % 3) {
            case 0:
                model[i] |= i * PAGE >= start && (i + 1) * PAGE <= end;
                break;
            case 1:
                model[i] = false;
                break;
            default:
                all &= model[i];
            }
        }
        switch (round % 3) {
        case 0:
            zeromap_mark(map, start, len);
            break;
        case 1:
            zeromap_forget(map, start, len);
            break;
        default:
            g_assert_cmpint(zeromap_known(map, start, len), ==, all);
        }
    }
    for (unsigned i = 0; i < pages; i++) {
        unsigned run = 0;

        g_assert_cmpint(zeromap_known(map, i * PAGE, PAGE), ==, model[i]);
        while (i + run < pages && model[i + run]) {
            run++;
        }
        g_assert_cmpuint(zeromap_run(map, i * PAGE, UINT64_MAX), ==,
                         run * PAGE);
        g_assert_cmpuint(zeromap_run(map, i * PAGE, 5 * PAGE), ==,
                         MIN(run, 5) * PAGE);
    }
    g_assert_cmpuint(zeromap_run(map, pages * PAGE, PAGE), ==, 0);
    g_rand_free(rand);
    zeromap_free(map);
}

/* Number of the @max pages from @first on that are @known, page by page */
static unsigned naive(const bool *model, unsigned pages, unsigned first,
                      unsigned max, bool known)
{
    unsigned n = 0;

    while (n < max && (first + n < pages && model[first + n]) == known) {
        n++;
    }
    return n;
}

static void check_each_run_and_gap(const ZeroMap *map, const bool *model,
                                   unsigned pages)
{
    for (unsigned first = 0; first < pages + 3; first++) {
        for (unsigned max = 0; max < pages + 5; max++) {
            uint64_t run = zeromap_run(map, first * PAGE, max * PAGE);
            uint64_t gap = zeromap_gap(map, first * PAGE, max * PAGE);

            g_assert_cmpuint(run, ==, PAGE *
                             naive(model, pages, first, max, true));
            g_assert_cmpuint(gap, ==, PAGE *
                             naive(model, pages, first, max, false));
            /* Either a run or a gap begins here */
            g_assert_true(max ? !run != !gap : !run && !gap);
            g_assert_true(!run || zeromap_known(map, first * PAGE, run));
        }
    }
}

static void test_every_run_and_gap(void)
{
    static const unsigned sizes[] = { 0, 1, 2, 63, 64, 65, 127, 128, 129 };
    GRand *rand = g_rand_new_with_seed(4);

    for (unsigned i = 0; i < 10 * G_N_ELEMENTS(sizes); i++) {
        unsigned pages = sizes[i % G_N_ELEMENTS(sizes)];
        /* The map excludes bytes after the last whole page */
        ZeroMap *map = zeromap_new(pages * PAGE + (i % 2) * 100, BITS);
        bool model[129] = { false };

        /* Long runs, single pages, no page and all pages */
        for (unsigned j = 0; j < pages; j++) {
            model[j] = j && g_rand_int_range(rand, 0, 10) < (int)i % 10
                       ? model[j - 1] : g_rand_int_range(rand, 0, 19) < (int)i;
            if (model[j]) {
                zeromap_mark(map, j * PAGE, PAGE);
            }
        }
        check_each_run_and_gap(map, model, pages);
        zeromap_free(map);
    }
    g_rand_free(rand);
}

/* Alternating runs and gaps pass the whole map, up to the limit */
static void test_runs_and_gaps_take_turns(void)
{
    ZeroMap *map = zeromap_new(1000 * PAGE, BITS);
    GRand *rand = g_rand_new_with_seed(5);
    uint64_t at = 0, known = 0, marked = 0;

    for (unsigned i = 0; i < 1000; i++) {
        if (g_rand_boolean(rand)) {
            zeromap_mark(map, i * PAGE, PAGE);
            marked += PAGE;
        }
    }
    while (at < 1200 * PAGE) {
        uint64_t run = zeromap_run(map, at, 1200 * PAGE - at);
        uint64_t gap = zeromap_gap(map, at + run, 1200 * PAGE - at - run);

        g_assert_cmpuint(run + gap, >, 0);
        known += run;
        at += run + gap;
    }
    g_assert_cmpuint(at, ==, 1200 * PAGE);
    g_assert_cmpuint(known, ==, marked);
    g_rand_free(rand);
    zeromap_free(map);
}

static void test_gap_goes_on_beyond_the_end(void)
{
    ZeroMap *map = zeromap_new(64 * PAGE + 100, BITS);

    g_assert_cmpuint(zeromap_gap(map, 0, 100 * PAGE), ==, 100 * PAGE);
    zeromap_mark(map, 0, 64 * PAGE);
    g_assert_cmpuint(zeromap_gap(map, 63 * PAGE, 100 * PAGE), ==, 0);
    g_assert_cmpuint(zeromap_gap(map, 64 * PAGE, 100 * PAGE), ==, 100 * PAGE);
    zeromap_forget(map, 63 * PAGE, 1);
    g_assert_cmpuint(zeromap_gap(map, 63 * PAGE, 100 * PAGE), ==, 100 * PAGE);
    g_assert_cmpuint(zeromap_gap(map, 60 * PAGE, 100 * PAGE), ==, 0);
    g_assert_cmpuint(zeromap_gap(map, 63 * PAGE, UINT64_MAX - PAGE + 1), ==,
                     UINT64_MAX - PAGE + 1);
    g_assert_cmpuint(zeromap_gap(map, UINT64_MAX - PAGE + 1, PAGE), ==, PAGE);
    g_assert_cmpuint(zeromap_gap(map, 63 * PAGE, 0), ==, 0);
    zeromap_free(map);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/zeromap/knows-nothing-at-first",
                    test_knows_nothing_at_first);
    g_test_add_func("/zeromap/mark-rounds-inwards", test_mark_rounds_inwards);
    g_test_add_func("/zeromap/forget-rounds-outwards",
                    test_forget_rounds_outwards);
    g_test_add_func("/zeromap/beyond-the-end-is-unknown",
                    test_beyond_the_end_is_unknown);
    g_test_add_func("/zeromap/empty-map", test_empty_map);
    g_test_add_func("/zeromap/random-against-a-model",
                    test_random_against_a_model);
    g_test_add_func("/zeromap/every-run-and-gap", test_every_run_and_gap);
    g_test_add_func("/zeromap/runs-and-gaps-take-turns",
                    test_runs_and_gaps_take_turns);
    g_test_add_func("/zeromap/gap-goes-on-beyond-the-end",
                    test_gap_goes_on_beyond_the_end);
    return g_test_run();
}
