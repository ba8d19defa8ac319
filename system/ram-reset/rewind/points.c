/*
 * RAM reset: the points that a rewind can go to
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "system/ram-reset-rewind.h"
#include "system/ram-reset/rewind/baseline.h"
#include "system/ram-reset/rewind/points.h"

/* Protected by the BQL */
static struct {
    PagePool *pool;             /* NULL: there is no baseline */
    size_t page_size;
    GHashTable *all;            /* number -> RewindPoint, owned */
    RewindPoint *position;
    uint64_t position_number;   /* of the point equal to @position; 0: none */
    uint64_t last_number;
    unsigned pinned[POINT_PIN__MAX];
} points;

static RewindPoint *point_alloc(unsigned nr)
{
    RewindPoint *p = g_new0(RewindPoint, 1);

    p->nr = nr;
    p->trees = g_new0(PageTree *, nr);
    return p;
}

RewindPoint *point_new(const GArray *baseline)
{
    RewindPoint *p = point_alloc(baseline->len);

    for (unsigned i = 0; i < p->nr; i++) {
        const BaselineBlock *base = &g_array_index(baseline, BaselineBlock, i);

        if (base->copy) {
            p->trees[i] = page_tree_new(points.pool,
                                        base->len / points.page_size);
        }
    }
    return p;
}

RewindPoint *point_copy(const RewindPoint *p)
{
    RewindPoint *copy = point_alloc(p->nr);

    for (unsigned i = 0; i < p->nr; i++) {
        copy->trees[i] = p->trees[i] ? page_tree_copy(p->trees[i]) : NULL;
    }
    return copy;
}

void point_free(RewindPoint *p)
{
    for (unsigned i = 0; p && i < p->nr; i++) {
        page_tree_free(p->trees[i]);
    }
    if (p) {
        g_free(p->trees);
        g_free(p);
    }
}

static void point_destroy(void *opaque)
{
    RewindPoint *p = opaque;

    for (int pin = 0; pin < POINT_PIN__MAX; pin++) {
        points.pinned[pin] -= p->pinned[pin];
    }
    point_free(p);
}

void points_begin(const GArray *baseline, size_t page_size)
{
    points.page_size = page_size;
    points.pool = page_pool_new(page_size);
    points.all = g_hash_table_new_full(g_int64_hash, g_int64_equal, g_free,
                                       point_destroy);
    points.position = point_new(baseline);
}

void points_end(void)
{
    if (points.pool) {
        g_clear_pointer(&points.all, g_hash_table_unref);
        g_clear_pointer(&points.position, point_free);
        g_clear_pointer(&points.pool, page_pool_free);
    }
}

const RewindPoint *points_position(void)
{
    return points.position;
}

void points_set_position(RewindPoint *p)
{
    point_free(points.position);
    points.position = p;
    points.position_number = 0;
}

uint64_t points_add_position(void)
{
    uint64_t *number = g_new(uint64_t, 1);

    *number = points.position_number = ++points.last_number;
    g_hash_table_insert(points.all, number, point_copy(points.position));
    return points.last_number;
}

const RewindPoint *points_find(uint64_t number)
{
    const RewindPoint *p =
        points.all ? g_hash_table_lookup(points.all, &number) : NULL;

    return p && number == points.position_number ? points.position : p;
}

void points_go_to(uint64_t number)
{
    if (number != points.position_number) {
        points_set_position(point_copy(points_find(number)));
        points.position_number = number;
    }
}

void points_drop(uint64_t number)
{
    if (points.all) {
        g_hash_table_remove(points.all, &number);
    }
}

bool points_has_others(uint64_t number)
{
    return points.all && g_hash_table_size(points.all) >
                         g_hash_table_contains(points.all, &number);
}

static void point_set_pin(uint64_t number, PointPin pin, bool pinned)
{
    RewindPoint *p =
        points.all ? g_hash_table_lookup(points.all, &number) : NULL;

    if (p) {
        points.pinned[pin] += pinned - p->pinned[pin];
        p->pinned[pin] = pinned;
    }
}

void points_pin(uint64_t number, PointPin pin)
{
    point_set_pin(number, pin, true);
}

void points_unpin(uint64_t number, PointPin pin)
{
    point_set_pin(number, pin, false);
}

bool points_are_pinned(PointPin pin)
{
    return points.pinned[pin];
}

PagePool *points_pool(void)
{
    return points.pool;
}

uint64_t points_size(void)
{
    return points.pool ? page_pool_pages(points.pool) * points.page_size : 0;
}

uint64_t points_tables(void)
{
    return points.pool ? page_pool_bytes(points.pool) - points_size() : 0;
}

uint64_t ram_reset_points_size(const GArray *numbers)
{
    g_autoptr(GHashTable) seen = g_hash_table_new(NULL, NULL);
    uint64_t pages = 0, shared, own;

    for (unsigned i = 0; i < numbers->len; i++) {
        const RewindPoint *p = points_find(g_array_index(numbers, uint64_t, i));

        for (unsigned j = 0; p && j < p->nr; j++) {
            if (p->trees[j]) {
                page_tree_count(p->trees[j], seen, &shared, &own);
                pages += shared + own;
            }
        }
    }
    return pages * points.page_size;
}
