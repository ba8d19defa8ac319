/*
 * RAM reset: read the pages of a point
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/bitmap.h"
#include "exec/target_page.h"
#include "system/ram-reset-rewind.h"
#include "system/ram-reset/rewind/baseline.h"
#include "system/ram-reset/rewind/internal.h"
#include "system/ram-reset/rewind/points.h"
#include "system/ram-reset/rewind/unread.h"

bool ram_reset_point_block(uint64_t point, unsigned nr, const char **name,
                           uint64_t *pages)
{
    const BaselineBlock *base;

    if (!points_find(point) || nr >= rewind_state.blocks->len) {
        return false;
    }
    base = &g_array_index(rewind_state.blocks, BaselineBlock, nr);
    *name = base->name;
    *pages = base->copy ? base->len / qemu_target_page_size() : 0;
    return true;
}

const uint8_t *ram_reset_point_page(uint64_t point, unsigned block,
                                    uint64_t page)
{
    const BaselineBlock *base = &g_array_index(rewind_state.blocks,
                                               BaselineBlock, block);
    PageRef ref = page_tree_get(points_find(point)->trees[block], page);

    if (page_ref_stored(ref)) {
        return page_pool_page(points_pool(), ref);
    }
    if (ref == PAGE_ZERO || !test_bit(page, ram_copy_stored(base->copy))) {
        return NULL;
    }
    assert(!ram_copy_is_unread(base->copy, page));
    return ram_copy_bytes(base->copy) + page * qemu_target_page_size();
}

void ram_reset_point_diff(uint64_t point, uint64_t other, unsigned block,
                          unsigned long *pages)
{
    page_tree_diff(points_find(point)->trees[block],
                   points_find(other)->trees[block], pages);
}

uint64_t ram_reset_point_count_diff(uint64_t point, uint64_t other)
{
    const RewindPoint *a = points_find(point), *b = points_find(other);
    uint64_t pages = 0;

    for (unsigned i = 0; i < a->nr; i++) {
        if (a->trees[i]) {
            pages += page_tree_count_diff(a->trees[i], b->trees[i]);
        }
    }
    return pages;
}

void ram_reset_unpin_point(uint64_t point)
{
    points_unpin(point, POINT_PIN_MEMORY);
}

void ram_reset_pin_by_user(uint64_t point, bool pinned)
{
    if (pinned) {
        points_pin(point, POINT_PIN_USER);
    } else {
        points_unpin(point, POINT_PIN_USER);
    }
}

bool ram_reset_point_is_whole(uint64_t point)
{
    return ram_reset_point_fits(point) &&
           unread_read_all(rewind_state.blocks, NULL);
}
