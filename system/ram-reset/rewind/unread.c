/*
 * RAM reset: pages of the baseline that are in the snapshot's image only
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qapi/error.h"
#include "qemu/bitmap.h"
#include "system/ram-reset/rewind/unread.h"
#include "system/ram-reset/trace.h"

/* NULL: there are no unread pages.  BQL */
static RamResetPageStore *unread_pages;

void unread_set_store(RamResetPageStore *store)
{
    ram_reset_page_store_free(unread_pages);
    unread_pages = store;
}

RamResetPageStore *unread_store(void)
{
    return unread_pages;
}

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

    for (unsigned i = 0; unread_pages && i < baseline->len; i++) {
        const BaselineBlock *base = &g_array_index(baseline, BaselineBlock, i);

        pages += find_unread(base, NULL, NULL, NULL);
    }
    return pages * qemu_target_page_size();
}

bool unread_read(BaselineBlock *base, const unsigned long *among,
                 const unsigned long *except, Error **errp)
{
    ERRP_GUARD();
    RamResetPageStore *store = unread_pages;
    uint64_t all = base->len / qemu_target_page_size(), pages;
    g_autofree unsigned long *found = NULL;

    if (!store) {
        return true;
    }
    /* Most loads read nothing, and a bitmap of a large block costs them more */
    pages = find_unread(base, among, except, NULL);
    if (!pages) {
        return true;
    }
    found = bitmap_new(all);
    find_unread(base, among, except, found);
    if (!store->read(store, base->rb, base->name, found, all,
                     ram_copy_room(base->copy), errp)) {
        error_prepend(errp, "RAM block '%s': ", base->name);
        return false;
    }
    ram_copy_has_read(base->copy, found);
    trace_ram_reset_read_baseline(base->name, pages);
    return true;
}

bool unread_read_all(GArray *baseline, Error **errp)
{
    for (unsigned i = 0; unread_pages && i < baseline->len; i++) {
        if (!unread_read(&g_array_index(baseline, BaselineBlock, i), NULL, NULL,
                         errp)) {
            return false;
        }
    }
    unread_set_store(NULL);
    return true;
}
