/*
 * Unit tests for system/ram-reset/zeromap.c
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include <glib.h>
#include <string.h>
#include "../../system/ram-reset/zeromap.h"

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

/* Against one bool a page, with byte ranges at random */
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
    return g_test_run();
}
