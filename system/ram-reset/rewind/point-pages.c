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

/* Pages; a vCPU may wait for the BQL meanwhile */
#define READ_AHEAD 256

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

/* Read some pages at once, from @page on, that are in an image only */
static bool read_from(BaselineBlock *base, uint64_t page, Error **errp)
{
    uint64_t pages = base->len / qemu_target_page_size();
    g_autofree unsigned long *among = NULL;

    if (!ram_copy_is_unread(base->copy, page)) {
        return true;
    }
    among = bitmap_new(pages);
    bitmap_set(among, page, MIN(READ_AHEAD, pages - page));
    return unread_read(base, among, NULL, errp);
}

bool ram_reset_point_page(uint64_t point, unsigned block, uint64_t page,
                          const uint8_t **content, Error **errp)
{
    BaselineBlock *base = &g_array_index(rewind_state.blocks, BaselineBlock,
                                         block);
    PageRef ref = page_tree_get(points_find(point)->trees[block], page);

    *content = NULL;
    if (page_ref_stored(ref)) {
        *content = page_pool_page(points_pool(), ref);
    } else if (ref == PAGE_AS_BASE &&
               test_bit(page, ram_copy_stored(base->copy))) {
        if (!read_from(base, page, errp)) {
            return false;
        }
        *content = ram_copy_bytes(base->copy) + page * qemu_target_page_size();
    }
    return true;
}

void ram_reset_unpin_point(uint64_t point)
{
    points_unpin(point);
}
