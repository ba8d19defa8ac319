/*
 * Trees of pages, and the same as arrays
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/bitmap.h"
#include "page-model.h"

#define GUARD 0xa5a5a5a5a5a5a5a5ul

PageModel *page_model_new(uint64_t pages, size_t page_size)
{
    PageModel *m = g_new0(PageModel, 1);

    m->pool = page_pool_new(page_size);
    m->pages = pages;
    m->last_id = PAGE_ZERO;
    m->page_size = page_size;
    m->page = g_malloc0(page_size);
    m->trees[0] = page_tree_new(m->pool, pages);
    m->ids[0] = g_new0(uint64_t, pages);
    return m;
}

void page_model_copy(PageModel *m, unsigned from, unsigned to)
{
    g_assert_null(m->trees[to]);
    m->trees[to] = page_tree_copy(m->trees[from]);
    m->ids[to] = g_memdup2(m->ids[from], m->pages * sizeof(uint64_t));
}

void page_model_drop(PageModel *m, unsigned i)
{
    page_tree_free(m->trees[i]);
    m->trees[i] = NULL;
    g_clear_pointer(&m->ids[i], g_free);
}

void page_model_free(PageModel *m)
{
    for (unsigned i = 0; i < MAX_TREES; i++) {
        page_model_drop(m, i);
    }
    g_assert_cmpuint(page_pool_pages(m->pool), ==, 0);
    g_assert_cmpuint(page_pool_bytes(m->pool), <, 4096);
    page_pool_free(m->pool);
    g_free(m->page);
    g_free(m);
}

PageRef page_model_put(PageModel *m)
{
    m->last_id++;
    m->page[0] = m->page[m->page_size / sizeof(uint64_t) - 1] = m->last_id;
    return page_pool_put(m->pool, (uint8_t *)m->page);
}

static uint64_t page_model_id(const PageModel *m, PageRef ref)
{
    const uint64_t *page;

    if (!page_ref_stored(ref)) {
        g_assert_cmpuint(ref, <=, PAGE_ZERO);
        return ref;
    }
    page = (const uint64_t *)page_pool_page(m->pool, ref);
    g_assert_cmpuint(page[0], >, PAGE_ZERO);
    g_assert_cmpuint(page[0], ==, page[m->page_size / sizeof(uint64_t) - 1]);
    return page[0];
}

bool page_model_set(PageModel *m, unsigned i, uint64_t page, PageRef ref)
{
    uint64_t id = ref == PAGE_NO_MEMORY ? 0 : page_model_id(m, ref);

    if (!page_tree_set(m->trees[i], page, ref)) {
        return false;
    }
    m->ids[i][page] = id;
    return true;
}

static void check_diff(const PageModel *m, unsigned a, unsigned b)
{
    size_t words = BITS_TO_LONGS(m->pages);
    g_autofree unsigned long *bits = bitmap_new((words + 1) * BITS_PER_LONG);
    uint64_t page, set = g_test_rand_int_range(0, m->pages), nr = 0;

    bits[words] = GUARD;
    set_bit(set, bits);
    page_tree_diff(m->trees[a], m->trees[b], bits);
    for (page = 0; page < m->pages; page++) {
        bool differs = (m->ids[a] ? m->ids[a][page] : PAGE_AS_BASE) !=
                       (m->ids[b] ? m->ids[b][page] : PAGE_AS_BASE);

        nr += differs;
        g_assert_cmpint(test_bit(page, bits), ==, differs || page == set);
    }
    for (; page < words * BITS_PER_LONG; page++) {
        g_assert_false(test_bit(page, bits));
    }
    g_assert_cmpuint(bits[words], ==, GUARD);
    g_assert_cmpuint(page_tree_count_diff(m->trees[a], m->trees[b]), ==, nr);
}

/* By id: the number of pages of trees that have it */
static unsigned *page_model_holders(const PageModel *m)
{
    unsigned *holders = g_new0(unsigned, m->last_id + 1);

    for (unsigned i = 0; i < MAX_TREES; i++) {
        for (uint64_t page = 0; m->ids[i] && page < m->pages; page++) {
            holders[m->ids[i][page]]++;
        }
    }
    return holders;
}

static void check_tree(const PageModel *m, unsigned i, const unsigned *holders)
{
    uint64_t shared, own, model_shared = 0, model_own = 0;

    for (uint64_t page = 0; page < m->pages; page++) {
        PageRef ref = page_tree_get(m->trees[i], page);
        uint64_t id = m->ids[i][page];

        g_assert_cmpuint(page_model_id(m, ref), ==, id);
        if (page_ref_stored(ref)) {
            g_assert_cmpuint(page_pool_refs(m->pool, ref), <=, holders[id]);
            model_shared += holders[id] > 1;
            model_own += holders[id] == 1;
        }
    }
    page_tree_count(m->trees[i], NULL, &shared, &own);
    g_assert_cmpuint(shared, ==, model_shared);
    g_assert_cmpuint(own, ==, model_own);
}

/* All trees together have each stored page, but count it once */
static uint64_t count_together(const PageModel *m)
{
    g_autoptr(GHashTable) seen = g_hash_table_new(NULL, NULL);
    uint64_t nr = 0, shared, own;

    for (unsigned i = 0; i < MAX_TREES; i++) {
        if (m->trees[i]) {
            page_tree_count(m->trees[i], seen, &shared, &own);
            nr += shared + own;
        }
    }
    return nr;
}

void page_model_check(const PageModel *m)
{
    g_autofree unsigned *holders = page_model_holders(m);
    uint64_t stored = 0;

    for (unsigned i = 0; i < MAX_TREES; i++) {
        if (m->trees[i]) {
            check_tree(m, i, holders);
        }
        check_diff(m, i, g_test_rand_int_range(0, MAX_TREES));
        check_diff(m, g_test_rand_int_range(0, MAX_TREES), i);
    }
    for (uint64_t id = PAGE_ZERO + 1; id <= m->last_id; id++) {
        stored += holders[id] > 0;
    }
    g_assert_cmpuint(page_pool_pages(m->pool), ==, stored);
    g_assert_cmpuint(count_together(m), ==, stored);
}
