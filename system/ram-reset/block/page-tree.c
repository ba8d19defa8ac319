/*
 * The pages in which one snapshot of a RAM block differs from a base copy
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/bitmap.h"
#include "system/ram-reset/block/page-tree.h"

/*
 * A scattered page needs a leaf, and half a table above or more.  Small tables
 * cost less then, and little more for pages in a row: 4.5 bytes each.
 */
#define LEAF_BITS 5
#define LEAF_REFS (1u << LEAF_BITS)
#define INNER_BITS 4
#define INNER_NODES (1u << INNER_BITS)
/* PAGE_TREE_MAX pages need 8 levels above the leaves */
#define MAX_LEVELS 9

/*
 * A table, at level 0 a leaf.  @count: trees and tables that have it; @used:
 * entries that are not NULL or PAGE_AS_BASE, never 0 in a tree
 */
typedef struct PageNode PageNode;
struct PageNode {
    uint32_t count, used;
    union {
        PageNode *nodes[INNER_NODES];
        PageRef refs[LEAF_REFS];
    };
};

/* In place of a missing table */
static const PageNode node_none;

/* @height: the level of @root */
struct PageTree {
    PagePool *pool;
    uint64_t pages;
    unsigned height;
    PageNode *root;
};

/* A page's entry in its table of this level */
static unsigned node_entry(uint64_t page, unsigned level)
{
    return level ? page >> (LEAF_BITS + INNER_BITS * (level - 1)) &
                   (INNER_NODES - 1)
                 : page & (LEAF_REFS - 1);
}

/* Number of pages below an entry of a table at @level, which is above 0 */
static uint64_t node_step(unsigned level)
{
    return UINT64_C(1) << (LEAF_BITS + INNER_BITS * (level - 1));
}

static void node_ref(PageNode *node)
{
    assert(node->count < UINT32_MAX);
    node->count++;
}

static void node_unref(PagePool *pool, PageNode *node, unsigned level)
{
    if (!node || --node->count) {
        return;
    }
    if (level) {
        for (unsigned i = 0; i < INNER_NODES; i++) {
            node_unref(pool, node->nodes[i], level - 1);
        }
    } else {
        for (unsigned i = 0; i < LEAF_REFS; i++) {
            page_pool_unref(pool, node->refs[i]);
        }
    }
    g_free(node);
    page_pool_add_tables(pool, -(int64_t)sizeof(*node));
}

/* Let @copy, which is empty, have the content of @node */
static void node_fill(PagePool *pool, PageNode *copy, const PageNode *node,
                      unsigned level)
{
    *copy = *node;
    copy->count = 1;
    if (level) {
        for (unsigned i = 0; i < INNER_NODES; i++) {
            if (copy->nodes[i]) {
                node_ref(copy->nodes[i]);
            }
        }
    } else {
        for (unsigned i = 0; i < LEAF_REFS; i++) {
            page_pool_ref(pool, copy->refs[i]);
        }
    }
}

static PageTree *tree_new(PagePool *pool, uint64_t pages, unsigned height,
                          PageNode *root)
{
    PageTree *t = g_new(PageTree, 1);

    *t = (PageTree) {
        .pool = pool, .pages = pages, .height = height, .root = root,
    };
    page_pool_add_tables(pool, sizeof(*t));
    return t;
}

PageTree *page_tree_new(PagePool *pool, uint64_t pages)
{
    unsigned height = 0;

    assert(pages <= PAGE_TREE_MAX);
    while (node_step(height + 1) < pages) {
        height++;
    }
    assert(height < MAX_LEVELS);
    return tree_new(pool, pages, height, NULL);
}

PageTree *page_tree_copy(PageTree *t)
{
    if (t->root) {
        node_ref(t->root);
    }
    return tree_new(t->pool, t->pages, t->height, t->root);
}

void page_tree_free(PageTree *t)
{
    if (!t) {
        return;
    }
    node_unref(t->pool, t->root, t->height);
    page_pool_add_tables(t->pool, -(int64_t)sizeof(*t));
    g_free(t);
}

bool page_tree_is_empty(const PageTree *t)
{
    return !t->root;
}

PageRef page_tree_get(const PageTree *t, uint64_t page)
{
    const PageNode *node = t->root;

    assert(page < t->pages);
    for (unsigned level = t->height; node && level; level--) {
        node = node->nodes[node_entry(page, level)];
    }
    return node ? node->refs[node_entry(page, 0)] : PAGE_AS_BASE;
}

/*
 * Number of tables, from the leaf upwards, that have only this page, and are
 * all there
 */
static unsigned tree_only(const PageTree *t, uint64_t page)
{
    const PageNode *node = t->root;
    unsigned only = 0;

    for (unsigned level = t->height; ; level--) {
        only = node->used == 1 ? only + 1 : 0;
        if (!level) {
            return only;
        }
        node = node->nodes[node_entry(page, level)];
    }
}

/* Number of tables from level @last upwards that are missing or shared */
static unsigned tree_lacks(const PageTree *t, uint64_t page, unsigned last)
{
    const PageNode *node = t->root;
    bool shared = false;
    unsigned lacks = 0;

    for (unsigned level = t->height; ; level--) {
        shared |= !node || node->count > 1;
        lacks += shared;
        if (level == last) {
            return lacks;
        }
        node = node ? node->nodes[node_entry(page, level)] : NULL;
    }
}

/* All that are needed, or none, so that no change is half done */
static bool tree_alloc(PageTree *t, PageNode **fresh, unsigned nr)
{
    for (unsigned i = 0; i < nr; i++) {
        fresh[i] = g_try_malloc0(sizeof(PageNode));
        if (!fresh[i]) {
            while (i) {
                g_free(fresh[--i]);
            }
            return false;
        }
    }
    page_pool_add_tables(t->pool, nr * sizeof(PageNode));
    return true;
}

/*
 * Take tables of @fresh for missing and for shared ones, down to level @last.
 * Returns the table of that level.
 */
static PageNode *tree_own(PageTree *t, uint64_t page, unsigned last,
                          PageNode **fresh)
{
    PageNode **at = &t->root, *above = NULL;

    for (unsigned level = t->height; ; level--) {
        PageNode *node = *at;

        if (!node) {
            *at = *fresh++;
            (*at)->count = 1;
            if (above) {
                above->used++;
            }
        } else if (node->count > 1) {
            *at = *fresh++;
            node_fill(t->pool, *at, node, level);
            node_unref(t->pool, node, level);
        }
        above = *at;
        if (level == last) {
            return above;
        }
        at = &above->nodes[node_entry(page, level)];
    }
}

/* Remove the @only lowest tables of a page; see tree_only() */
static bool tree_remove(PageTree *t, uint64_t page, unsigned only)
{
    PageNode *fresh[MAX_LEVELS], *above, **at = &t->root;

    if (only <= t->height) {
        if (!tree_alloc(t, fresh, tree_lacks(t, page, only))) {
            return false;
        }
        above = tree_own(t, page, only, fresh);
        above->used--;
        at = &above->nodes[node_entry(page, only)];
    }
    node_unref(t->pool, *at, only - 1);
    *at = NULL;
    return true;
}

bool page_tree_set(PageTree *t, uint64_t page, PageRef ref)
{
    PageNode *fresh[MAX_LEVELS], *leaf;
    PageRef old = page_tree_get(t, page);
    unsigned only;

    if (ref == PAGE_NO_MEMORY) {
        return false;
    }
    if (ref == old) {
        page_pool_unref(t->pool, ref);
        return true;
    }
    only = ref == PAGE_AS_BASE ? tree_only(t, page) : 0;
    if (only) {
        return tree_remove(t, page, only);
    }
    if (!tree_alloc(t, fresh, tree_lacks(t, page, 0))) {
        page_pool_unref(t->pool, ref);
        return false;
    }
    leaf = tree_own(t, page, 0, fresh);
    leaf->refs[node_entry(page, 0)] = ref;
    leaf->used += (old == PAGE_AS_BASE) - (ref == PAGE_AS_BASE);
    page_pool_unref(t->pool, old);
    return true;
}

static uint64_t leaf_diff(const PageNode *a, const PageNode *b, uint64_t first,
                          unsigned long *bits)
{
    uint32_t found = 0;

    for (unsigned i = 0; i < LEAF_REFS; i++) {
        found |= (uint32_t)(a->refs[i] != b->refs[i]) << i;
    }
    if (bits) {
        bits[first / BITS_PER_LONG] |= (unsigned long)found
                                       << first % BITS_PER_LONG;
    }
    return __builtin_popcount(found);
}

/* Tables are scattered in memory: fetch those below beforehand */
static void node_fetch(const PageNode *a, const PageNode *b)
{
    for (unsigned i = 0; i < INNER_NODES; i++) {
        if (a->nodes[i] != b->nodes[i]) {
            __builtin_prefetch(a->nodes[i]);
            __builtin_prefetch((char *)a->nodes[i] + 64);
            __builtin_prefetch(b->nodes[i]);
            __builtin_prefetch((char *)b->nodes[i] + 64);
        }
    }
}

/* @first: the first page of both; @bits: NULL to only count */
static uint64_t node_diff(const PageNode *a, const PageNode *b, unsigned level,
                          uint64_t first, unsigned long *bits)
{
    uint64_t nr = 0;

    if (a == b) {
        return 0;
    }
    a = a ?: &node_none;
    b = b ?: &node_none;
    if (!level) {
        return leaf_diff(a, b, first, bits);
    }
    node_fetch(a, b);
    for (unsigned i = 0; i < INNER_NODES; i++) {
        nr += node_diff(a->nodes[i], b->nodes[i], level - 1,
                        first + i * node_step(level), bits);
    }
    return nr;
}

static uint64_t tree_diff(const PageTree *a, const PageTree *b,
                          unsigned long *bits)
{
    const PageTree *t = a ?: b;

    if (!t) {
        return 0;
    }
    assert(!a || !b || (a->pool == b->pool && a->pages == b->pages));
    return node_diff(a ? a->root : NULL, b ? b->root : NULL, t->height, 0,
                     bits);
}

void page_tree_diff(const PageTree *a, const PageTree *b, unsigned long *bits)
{
    tree_diff(a, b, bits);
}

uint64_t page_tree_count_diff(const PageTree *a, const PageTree *b)
{
    return tree_diff(a, b, NULL);
}

/* @shared: whether a table above is; @seen: NULL to count all */
static void node_count(const PagePool *pool, const PageNode *node,
                       unsigned level, bool shared, GHashTable *seen,
                       uint64_t counts[2])
{
    if (!node ||
        (seen && node->count > 1 && !g_hash_table_add(seen, (void *)node))) {
        return;
    }
    shared |= node->count > 1;
    for (unsigned i = 0; level && i < INNER_NODES; i++) {
        node_count(pool, node->nodes[i], level - 1, shared, seen, counts);
    }
    for (unsigned i = 0; !level && i < LEAF_REFS; i++) {
        PageRef ref = node->refs[i];
        bool many = page_ref_stored(ref) && page_pool_refs(pool, ref) > 1;

        if (page_ref_stored(ref) &&
            (!many || !seen ||
             g_hash_table_add(seen, (void *)page_pool_page(pool, ref)))) {
            counts[shared || many]++;
        }
    }
}

void page_tree_count(const PageTree *t, GHashTable *seen, uint64_t *shared,
                     uint64_t *own)
{
    uint64_t counts[2] = { 0 };

    node_count(t->pool, t->root, t->height, false, seen, counts);
    *own = counts[false];
    *shared = counts[true];
}
