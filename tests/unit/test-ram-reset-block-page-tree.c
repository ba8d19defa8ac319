/*
 * Unit tests for the pages that snapshots of a RAM block change
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/bitmap.h"
#include "page-model.h"

#define PAGE 4096
#define MAX_PAGES 9000

static unsigned random_tree(const PageModel *m)
{
    unsigned i;

    do {
        i = g_test_rand_int_range(0, MAX_TREES);
    } while (!m->trees[i]);
    return i;
}

/* The caller owns a reference */
static PageRef random_ref(PageModel *m)
{
    PageRef ref;

    switch (g_test_rand_int_range(0, 6)) {
    case 0:
        return PAGE_ZERO;
    case 1:
        return PAGE_AS_BASE;
    case 2:
        /* A page that some tree has, if any */
        ref = page_tree_get(m->trees[random_tree(m)],
                            g_test_rand_int_range(0, m->pages));
        page_pool_ref(m->pool, ref);
        return ref;
    default:
        return page_model_put(m);
    }
}

/* Change pages in a row or scattered ones; often remove them */
static void random_sets(PageModel *m)
{
    unsigned i = random_tree(m), nr = g_test_rand_int_range(1, 100);
    uint64_t page = g_test_rand_int_range(0, m->pages);
    bool in_a_row = g_test_rand_bit(), remove = g_test_rand_int_range(0, 3) < 1;

    while (nr--) {
        g_assert_true(page_model_set(m, i, page,
                                remove ? PAGE_AS_BASE : random_ref(m)));
        if (in_a_row) {
            page = (page + 1) % m->pages;
        } else {
            page = g_test_rand_int_range(0, m->pages);
        }
    }
}

static void random_step(PageModel *m)
{
    unsigned i = g_test_rand_int_range(0, MAX_TREES), from = random_tree(m);

    random_sets(m);
    if (!m->trees[i]) {
        page_model_copy(m, from, i);
    } else if (i != from && g_test_rand_bit()) {
        page_model_drop(m, i);
    }
}

static void test_random(void)
{
    static const uint64_t sizes[] = {
        1, 2, 31, 32, 33, 63, 64, 65, 511, 512, 513, 700, 8191, 8192, 8193,
        MAX_PAGES,
    };

    for (size_t i = 0; i < G_N_ELEMENTS(sizes); i++) {
        PageModel *m = page_model_new(sizes[i], PAGE);
        unsigned rounds = sizes[i] > 1000 ? 60 : 200;

        for (unsigned round = 0; round < rounds; round++) {
            random_step(m);
            page_model_check(m);
        }
        page_model_free(m);
    }
}

/* Every page of a tree: the last of each table, and many chunks */
static void test_full(void)
{
    PageModel *m = page_model_new(MAX_PAGES, PAGE);
    uint64_t pages = page_pool_pages(m->pool);

    for (uint64_t page = 0; page < MAX_PAGES; page++) {
        g_assert_true(page_model_set(m, 0, page, page_model_put(m)));
    }
    page_model_copy(m, 0, 1);
    page_model_check(m);
    for (uint64_t page = 0; page < MAX_PAGES; page++) {
        g_assert_true(page_model_set(m, 1, page, PAGE_AS_BASE));
    }
    page_model_check(m);
    page_model_drop(m, 0);
    g_assert_cmpuint(page_pool_pages(m->pool), ==, pages);
    page_model_free(m);
}

/* A page that is set and removed again leaves no table, shared or not */
static void test_removed(void)
{
    PageModel *m = page_model_new(MAX_PAGES, PAGE);
    uint64_t empty;

    /* The pool keeps its table of chunks */
    page_pool_unref(m->pool, page_model_put(m));
    empty = page_pool_bytes(m->pool);
    for (unsigned round = 0; round < 50; round++) {
        for (unsigned i = 0; i < 50; i++) {
            uint64_t page = g_test_rand_int_range(0, MAX_PAGES);

            g_assert_true(page_model_set(m, 0, page, random_ref(m)));
        }
        page_model_copy(m, 0, 1);
        for (unsigned i = 0; i < 2; i++) {
            for (uint64_t page = 0; page < MAX_PAGES; page++) {
                g_assert_true(page_model_set(m, i, page, PAGE_AS_BASE));
            }
        }
        page_model_drop(m, 1);
        g_assert_cmpuint(page_pool_bytes(m->pool), ==, empty);
    }
    page_model_free(m);
}

static void test_sharing(void)
{
    PageModel *m = page_model_new(MAX_PAGES, PAGE);
    uint64_t was = page_pool_bytes(m->pool), tree, shared, own;

    page_model_copy(m, 0, 1);
    tree = page_pool_bytes(m->pool) - was;
    for (uint64_t page = 0; page < MAX_PAGES; page += 10) {
        g_assert_true(page_model_set(m, 0, page, page_model_put(m)));
    }
    page_model_copy(m, 0, 2);
    was = page_pool_bytes(m->pool);
    page_model_copy(m, 0, 3);
    g_assert_cmpuint(page_pool_bytes(m->pool), ==, was + tree);
    page_tree_count(m->trees[3], NULL, &shared, &own);
    g_assert_cmpuint(shared, ==, MAX_PAGES / 10);
    g_assert_cmpuint(own, ==, 0);
    /* The same content is no change */
    for (uint64_t page = 0; page < MAX_PAGES; page++) {
        PageRef ref = page_tree_get(m->trees[3], page);

        page_pool_ref(m->pool, ref);
        g_assert_true(page_model_set(m, 3, page, ref));
    }
    g_assert_cmpuint(page_pool_bytes(m->pool), ==, was + tree);
    /* One change copies the tables of one page, at four levels */
    g_assert_true(page_model_set(m, 3, 77, PAGE_ZERO));
    g_assert_cmpuint(page_pool_bytes(m->pool), <=, was + tree + 4 * 136);
    page_model_check(m);
    page_model_free(m);
}

static void test_largest(void)
{
    static const uint64_t set[] = {
        0, UINT32_MAX, UINT64_C(1) << 32, 0x876543210, PAGE_TREE_MAX - 1,
    };
    PagePool *pool = page_pool_new(PAGE);
    PageTree *t = page_tree_new(pool, PAGE_TREE_MAX), *copy;
    size_t len = PAGE_TREE_MAX / 8, nr = G_N_ELEMENTS(set);
    unsigned long *bits = mmap(NULL, len, PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                               -1, 0);

    for (size_t i = 0; i < nr; i++) {
        g_assert_true(page_tree_set(t, set[i], PAGE_ZERO));
    }
    copy = page_tree_copy(t);
    g_assert_cmpuint(page_tree_count_diff(t, copy), ==, 0);
    g_assert_cmpuint(page_tree_count_diff(NULL, copy), ==, nr);
    for (size_t i = 0; i < nr; i++) {
        g_assert_cmpuint(page_tree_get(copy, set[i]), ==, PAGE_ZERO);
        g_assert_cmpuint(page_tree_get(copy, set[i] ^ 1), ==, PAGE_AS_BASE);
    }
    if (bits != MAP_FAILED) {
        page_tree_diff(NULL, t, bits);
        for (size_t i = 0; i < nr; i++) {
            g_assert_true(test_bit(set[i], bits));
        }
        munmap(bits, len);
    }
    page_tree_free(t);
    page_tree_free(copy);
    page_pool_free(pool);
}

/* Printed, and memory limited: 1,000 scattered pages of 8 GiB */
static void test_cost(void)
{
    const uint64_t pages = 2 << 20;
    PagePool *pool = page_pool_new(PAGE);
    PageTree *t = page_tree_new(pool, pages), *copy;
    g_autofree unsigned long *bits = bitmap_new(pages);
    uint64_t was = page_pool_bytes(pool), nr;
    int64_t start, copied, found;

    for (unsigned i = 0; i < 1000; i++) {
        g_assert_true(page_tree_set(t, g_test_rand_int_range(0, pages),
                                    PAGE_ZERO));
    }
    was = page_pool_bytes(pool) - was;
    start = g_get_monotonic_time();
    for (unsigned i = 0; i < 1000; i++) {
        page_tree_free(page_tree_copy(t));
    }
    copied = g_get_monotonic_time();
    page_tree_diff(NULL, t, bits);
    found = g_get_monotonic_time();
    nr = page_tree_count_diff(t, NULL);
    g_test_message("%" PRIu64 " scattered pages of 8 GiB: %" PRIu64 " bytes a "
                   "page, copied in %" PRIi64 " ns, found in %" PRIi64 " us",
                   nr, was / nr, copied - start, found - copied);
    g_assert_cmpuint(was / nr, <, 400);
    copy = page_tree_copy(t);
    g_assert_true(page_tree_set(copy, 12345, PAGE_ZERO));
    page_tree_free(t);
    page_tree_free(copy);
    page_pool_free(pool);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/page-tree/random", test_random);
    g_test_add_func("/page-tree/full", test_full);
    g_test_add_func("/page-tree/removed", test_removed);
    g_test_add_func("/page-tree/sharing", test_sharing);
    g_test_add_func("/page-tree/largest", test_largest);
    g_test_add_func("/page-tree/cost", test_cost);
    return g_test_run();
}
