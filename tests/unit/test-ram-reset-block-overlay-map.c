/*
 * Unit tests for the map of parts that are mapped from a template
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "system/ram-reset/block/overlay-map.h"
#include "system/ram-reset-flags.h"

#define BITS 512

static int made(void *opaque)
{
    (*(unsigned *)opaque)++;
    return 0;
}

static int fails(void *opaque)
{
    return *(int *)opaque;
}

static GArray *runs_of(const bool *bits, unsigned nr)
{
    GArray *runs = g_array_new(false, false, sizeof(PrimRange));

    for (unsigned i = 0; i < nr; i++) {
        if (bits[i] && (!i || !bits[i - 1])) {
            PrimRange run = { i, 1 };

            g_array_append_val(runs, run);
        } else if (bits[i]) {
            g_array_index(runs, PrimRange, runs->len - 1).len++;
        }
    }
    return runs;
}

static bool any_bit(const bool *bits, unsigned start, unsigned end)
{
    for (unsigned i = start; i < end; i++) {
        if (bits[i]) {
            return true;
        }
    }
    return false;
}

static void assert_known_as(const void *host, const bool *bits)
{
    g_autoptr(GArray) is = overlay_map_copy(host, NULL);
    g_autoptr(GArray) should = runs_of(bits, BITS);

    g_assert_cmpmem(is->data, is->len * sizeof(PrimRange),
                    should->data, should->len * sizeof(PrimRange));
}

/* Compare a block beside another one with a bit for each byte */
static void test_random(void)
{
    char host, other;
    bool bits[BITS], all[BITS];
    g_autoptr(GArray) runs = NULL;
    g_autoptr(GArray) all_runs = NULL;
    unsigned calls = 0;

    for (unsigned i = 0; i < BITS; i++) {
        bits[i] = g_test_rand_int_range(0, 8);
        all[i] = true;
    }
    runs = runs_of(bits, BITS);
    all_runs = runs_of(all, BITS);
    overlay_map_add(&other, NULL, -1, all_runs);
    overlay_map_add(&host, &bits, -1, runs);
    assert_known_as(&host, bits);
    for (unsigned i = 0; i < 2000; i++) {
        unsigned start = g_test_rand_int_range(0, BITS);
        unsigned end = g_test_rand_int_range(start, MIN(start + 8, BITS)) + 1;
        bool any = any_bit(bits, start, end);
        unsigned before = calls;

        g_assert(overlay_map_touches(&host, start, end) == any);
        g_assert_cmpint(overlay_map_cut(&host, &bits, start, end,
                                        G_MAXUINT, made, &calls),
                        ==, any ? 0 : 1);
        g_assert_cmpuint(calls, ==, before + any);
        memset(bits + start, 0, end - start);
        assert_known_as(&host, bits);
    }
    overlay_map_remove(&host);
    g_assert_true(ram_reset_flags.any_mapped);
    assert_known_as(&other, all);
    overlay_map_remove(&other);
    g_assert_false(ram_reset_flags.any_mapped);
}

static void test_refused(void)
{
    char host;
    bool bits[BITS] = { true, true, true };
    g_autoptr(GArray) runs = runs_of(bits, BITS);
    unsigned calls = 0;
    int error = -ENOSPC;

    g_assert_false(ram_reset_flags.any_mapped);
    g_assert_false(overlay_map_has(&host, NULL));
    g_assert_null(overlay_map_copy(&host, NULL));
    g_assert_false(overlay_map_touches(&host, 0, 1));
    overlay_map_add(&host, &bits, -1, runs);
    g_assert_true(overlay_map_has(&host, &bits));
    g_assert_true(overlay_map_has(&host, NULL));
    g_assert_false(overlay_map_has(&host, &calls));
    g_assert_cmpint(overlay_map_cut(&host, &calls, 0, 1, 9, made, &calls),
                    ==, 1);
    g_assert_cmpint(overlay_map_cut(&host, NULL, 0, 1, 9, fails,
                                    &error), ==, -ENOSPC);
    assert_known_as(&host, bits);
    /* The failed unmap counts */
    g_assert_cmpint(overlay_map_cut(&host, NULL, 0, 1, 1, made, &calls),
                    ==, -ENOMEM);
    g_assert_cmpuint(calls, ==, 0);
    assert_known_as(&host, bits);
    g_assert_true(ram_reset_flags.any_mapped);
    overlay_map_remove(&host);
    g_assert_false(ram_reset_flags.any_mapped);
    overlay_map_remove(&host);
    g_assert_false(ram_reset_flags.any_mapped);
}

typedef struct Asker {
    char host;
    unsigned what;
    GThread *thread;
    gint asks, answered;
} Asker;

static void ask_one(Asker *asker)
{
    g_autoptr(GArray) copy = NULL;

    switch (asker->what) {
    case 0:
        g_assert_true(overlay_map_touches(&asker->host, 0, 1));
        break;
    case 1:
        g_assert_true(overlay_map_has(&asker->host, NULL));
        break;
    default:
        copy = overlay_map_copy(&asker->host, NULL);
        g_assert_cmpuint(copy->len, ==, 2);
    }
}

static void *ask(void *opaque)
{
    Asker *asker = opaque;

    g_atomic_int_set(&asker->asks, 1);
    ask_one(asker);
    g_atomic_int_set(&asker->answered, 1);
    return NULL;
}

/* Gives the other thread enough time to show that it does not wait */
static int made_while_asked(void *opaque)
{
    Asker *asker = opaque;

    asker->thread = g_thread_new("asker", ask, asker);
    while (!g_atomic_int_get(&asker->asks)) {
        g_thread_yield();
    }
    g_usleep(50 * 1000);
    g_assert_false(g_atomic_int_get(&asker->answered));
    return 0;
}

/* Nobody reads runs while a discard in another thread changes them */
static void test_asked_while_discarding(void)
{
    PrimRange run = { 0, 3 };
    g_autoptr(GArray) runs = g_array_new(false, false, sizeof(PrimRange));

    g_array_append_val(runs, run);
    for (unsigned what = 0; what < 3; what++) {
        Asker asker = { .what = what };

        overlay_map_add(&asker.host, NULL, -1, runs);
        g_assert_cmpint(overlay_map_cut(&asker.host, NULL, 1, 2, 9,
                                        made_while_asked, &asker), ==, 0);
        g_thread_join(asker.thread);
        g_assert_true(asker.answered);
        overlay_map_remove(&asker.host);
    }
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/ram-reset/mapped-runs/random", test_random);
    g_test_add_func("/ram-reset/mapped-runs/refused", test_refused);
    g_test_add_func("/ram-reset/mapped-runs/asked-while-discarding",
                    test_asked_while_discarding);
    return g_test_run();
}
