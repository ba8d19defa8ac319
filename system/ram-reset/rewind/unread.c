/*
 * RAM reset: pages of the baseline that are in the snapshot's image only
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qapi/error.h"
#include "qemu/bitmap.h"
#include "qemu/error-report.h"
#include "system/ram-reset-disks.h"
#include "system/ram-reset/rewind/blockers.h"
#include "system/ram-reset/rewind/internal.h"
#include "system/ram-reset/rewind/points.h"
#include "system/ram-reset/rewind/unread.h"
#include "system/ram-reset/trace.h"

static uint64_t find_unread(const BaselineBlock *base,
                            const unsigned long *among,
                            const unsigned long *except, unsigned long *found)
{
    return base->copy ? ram_copy_find_unread(base->copy, among, except, found)
                      : 0;
}

uint64_t unread_size(const GArray *baseline)
{
    uint64_t pages = 0;

    for (unsigned i = 0; rewind_state.store && i < baseline->len; i++) {
        const BaselineBlock *base = &g_array_index(baseline, BaselineBlock, i);
        g_autofree unsigned long *found =
            bitmap_new(base->len / qemu_target_page_size());

        pages += find_unread(base, NULL, NULL, found);
    }
    return pages * qemu_target_page_size();
}

bool unread_read(BaselineBlock *base, const unsigned long *among,
                 const unsigned long *except, Error **errp)
{
    ERRP_GUARD();
    RamResetPageStore *store = rewind_state.store;
    uint64_t all = base->len / qemu_target_page_size(), pages;
    g_autofree unsigned long *found = NULL;

    if (!store || !base->copy) {
        return true;
    }
    found = bitmap_new(all);
    pages = find_unread(base, among, except, found);
    if (!pages) {
        return true;
    }
    if (!store->read(store, base->rb, base->name, found, all,
                     ram_copy_room(base->copy), errp)) {
        error_prepend(errp, "RAM block '%s': ", base->name);
        return false;
    }
    ram_copy_has_read(base->copy, found);
    trace_ram_reset_read_baseline(base->name, pages);
    return true;
}

bool unread_read_all(Error **errp)
{
    RamResetPageStore *store = rewind_state.store;

    for (unsigned i = 0; store && i < rewind_state.blocks->len; i++) {
        if (!unread_read(&g_array_index(rewind_state.blocks, BaselineBlock, i),
                         NULL, NULL, errp)) {
            return false;
        }
    }
    if (store) {
        rewind_state.store = NULL;
        store->free(store);
    }
    return true;
}

/*
 * The snapshot of the store is about to be deleted.  Read what other points
 * need of it.  If there are none, the next save or load takes a new baseline.
 */
static void read_before_deletion(BlockDriverState *bs, const char *id,
                                 const char *name)
{
    RamResetPageStore *store = rewind_state.store;
    Error *err = NULL;

    if (!store || !store->is_of(store, bs, id, name)) {
        return;
    }
    if (points_has_others(rewind_state.first_point)) {
        if (unread_read_all(&err)) {
            return;
        }
        warn_report_err(err);
    }
    ram_reset_block_baseline(RAM_RESET_BLOCKER_UNKNOWN_SNAPSHOT);
}

static void unread_follow_deletions(void)
{
    ram_reset_before_deletion_cb = read_before_deletion;
}

type_init(unread_follow_deletions)
