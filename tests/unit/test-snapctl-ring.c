/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The ring of contrib/snapctl: sizes, garbage, and two users at a time */

#include <glib.h>
#include <string.h>

#include "contrib/snapctl/ring.h"

#define REGION  65536

static struct ring_header *format(void *region, uint32_t entries,
                                  uint32_t input, uint32_t output)
{
    struct ring_header *h = region;

    h->version = RING_VERSION;
    h->entries = entries;
    h->input_size = input;
    h->output_size = output;
    h->magic = RING_MAGIC;
    return h;
}

static void test_ring_sizes(void)
{
    g_autofree void *region = g_malloc0(REGION);
    struct ring_header *h = format(region, 4, 100, 50);
    struct ring r = { 0 };
    static const uint32_t bad[][3] = {
        { 0, 100, 50 }, { RING_MAX_ENTRIES + 1, 0, 0 },
        { 1, RING_MAX_SIZE + 1, 0 }, { 1, 0, UINT32_MAX }, { 1, REGION, 0 },
        { UINT32_MAX, UINT32_MAX, UINT32_MAX }, { 1023, 1, 0 },
    };

    g_assert_true(ring_open(&r, region, REGION));
    g_assert_cmpuint(ring_stride(&r), ==, 64 + 128 + 64);
    g_assert_true((uint8_t *)ring_at(&r, 6) ==
                  (uint8_t *)region + 256 + 2 * 256);
    g_assert_true(ring_output(&r, ring_at(&r, 0)) ==
                  (uint8_t *)region + 256 + 64 + 128);
    g_assert_false(ring_open(&r, region, 256 + 4 * 256 - 1));
    g_assert_true(ring_open(&r, region, 256 + 4 * 256));
    g_assert_false(ring_open(&r, region, 255));
    for (size_t i = 0; i < G_N_ELEMENTS(bad); i++) {
        format(region, bad[i][0], bad[i][1], bad[i][2]);
        g_assert_false(ring_open(&r, region, REGION));
    }
    /* as many as there is room for */
    format(region, 1020, 0, 0);
    g_assert_true(ring_open(&r, region, REGION));
    h->version++;
    g_assert_false(ring_open(&r, region, REGION));
    h->version--;
    h->magic++;
    g_assert_false(ring_open(&r, region, REGION));
}

static void test_ring_garbage(void)
{
    g_autofree void *region = g_malloc0(REGION);
    struct ring_header *h = format(region, 4, 100, 50);
    struct ring r = { 0 };
    uint64_t number;

    g_assert_true(ring_open(&r, region, REGION));
    h->head = h->tail = UINT64_MAX;
    g_assert_false(ring_next(&r, &number));
    h->head = 3;
    g_assert_true(ring_next(&r, &number));
    g_assert_cmphex(number, ==, UINT64_MAX);
    ring_begin(&r, number);
    ring_complete(&r, number);
    g_assert_cmpuint(h->tail, ==, 0);
    g_assert_false(ring_is_current(&r, number));
    h->head = 5;
    g_assert_false(ring_next(&r, &number));
    h->tail = 6;
    g_assert_false(ring_next(&r, &number));
}

#define PASSED  200000

static void *host(void *region)
{
    struct ring_header *h = region;
    struct ring r = { 0 };
    uint64_t done = 0;

    g_assert_true(ring_open(&r, region, REGION));
    while (done < PASSED) {
        uint64_t head = h->head;
        struct ring_entry *e;

        if (head < PASSED && head - done < r.entries) {
            e = ring_at(&r, head);
            e->input_len = head % 100;
            memset(ring_input(e), head, 100);
            atomic_store_explicit(&h->head, head + 1, memory_order_release);
        } else if (atomic_load_explicit(&h->tail, memory_order_acquire) ==
                   done) {
            g_thread_yield();
        }
        for (; done < atomic_load_explicit(&h->tail, memory_order_acquire);
             done++) {
            e = ring_at(&r, done);
            g_assert_cmpuint(e->output_len, ==, done % 100 % 51);
            g_assert_cmpuint(*ring_output(&r, e), ==, (uint8_t)~done);
        }
    }
    return NULL;
}

static void test_ring_threads(void)
{
    g_autofree void *region = g_malloc0(REGION);
    GThread *thread;
    struct ring r = { 0 };

    format(region, 5, 100, 50);
    g_assert_true(ring_open(&r, region, REGION));
    thread = g_thread_new("host", host, region);
    for (uint64_t i = 0; i < PASSED;) {
        struct ring_entry *e;
        uint64_t number;

        if (!ring_next(&r, &number)) {
            g_thread_yield();
            continue;
        }
        g_assert_cmpuint(number, ==, i++);
        e = ring_at(&r, number);
        g_assert_cmpuint(e->input_len, ==, number % 100);
        g_assert_cmpuint(ring_input(e)[99], ==, (uint8_t)number);
        *ring_output(&r, e) = ~number;
        e->output_len = e->input_len % 51;
        ring_complete(&r, number);
    }
    g_thread_join(thread);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/snapctl/ring/sizes", test_ring_sizes);
    g_test_add_func("/snapctl/ring/garbage", test_ring_garbage);
    g_test_add_func("/snapctl/ring/threads", test_ring_threads);
    return g_test_run();
}
