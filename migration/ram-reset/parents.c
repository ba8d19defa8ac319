/*
 * Snapshots whose VM state in the image another one can share
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "system/ram-reset-rewind.h"
#include "migration/ram-reset/parents.h"

/*
 * The places of pages take about a thousandth of what a snapshot stores.  The
 * baseline is usually the first, and has something in common with all others.
 */
#define MAX_PARENTS 4

/* BQL */
static struct {
    RamResetParent all[MAX_PARENTS];
    unsigned nr;
} parents;

static void parents_remove(unsigned i)
{
    ram_reset_page_store_free(parents.all[i].store);
    parents.nr--;
    memmove(&parents.all[i], &parents.all[i + 1],
            (parents.nr - i) * sizeof(parents.all[0]));
}

static void parents_trim(void)
{
    for (unsigned i = parents.nr; i-- > 0; ) {
        if (!ram_reset_has_point(parents.all[i].point) ||
            !page_store_has_snapshot(parents.all[i].store)) {
            parents_remove(i);
        }
    }
}

void ram_reset_parents_add(const RamResetSnapshot *s, RamResetPageStore *store)
{
    if (!store) {
        return;
    }
    parents_trim();
    if (!ram_reset_has_point(s->point) || s->ram_end <= 0) {
        ram_reset_page_store_free(store);
        return;
    }
    if (parents.nr == MAX_PARENTS) {
        parents_remove(1);
    }
    parents.all[parents.nr++] = (RamResetParent) {
        .store = store,
        .point = s->point,
        .ram_end = s->ram_end,
        .ignore_shared = s->ignore_shared,
    };
}

const RamResetParent *ram_reset_parents_find(const RamResetSnapshot *s,
                                             BlockDriverState *bs)
{
    const RamResetParent *best = NULL;
    uint64_t least = UINT64_MAX;

    parents_trim();
    for (unsigned i = 0; i < parents.nr; i++) {
        const RamResetParent *p = &parents.all[i];
        uint64_t pages;

        if (p->store->is_of(p->store, bs, NULL, NULL) &&
            p->ignore_shared == s->ignore_shared) {
            pages = ram_reset_point_count_diff(s->point, p->point);
            if (pages < least) {
                least = pages;
                best = p;
            }
        }
    }
    return best;
}

void ram_reset_parents_drop(const RamResetPageStore *store)
{
    for (unsigned i = parents.nr; i-- > 0; ) {
        if (parents.all[i].store == store) {
            parents_remove(i);
        }
    }
}
