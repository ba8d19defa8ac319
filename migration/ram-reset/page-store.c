/*
 * The pages of a snapshot in its image
 *
 * The clusters of a snapshot do not change while it exists, and it does not
 * move to others.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qapi/error.h"
#include "qemu/bitmap.h"
#include "qemu/bswap.h"
#include "exec/target_page.h"
#include "system/ram-reset-compat.h"
#include "migration/ram-reset/page-store.h"
#include "migration/ram-reset/qcow2.h"
#include "migration/ram-reset/vmstate/format.h"

/* Pages that are read at once */
#define PAGES_AT_ONCE   256

typedef struct ImageStore {
    RamResetPageStore parent;

    char *node;                 /* name of the node with the image */
    QEMUSnapshotInfo info;
    PagePlaces *places;
    Qcow2Places *clusters;      /* of the VM state */
} ImageStore;

static bool store_find(RamResetPageStore *store, const RAMBlock *rb,
                       unsigned long *pages)
{
    ImageStore *s = (ImageStore *)store;
    const GArray *runs = page_places_runs(s->places, rb);

    for (unsigned i = 0; runs && i < runs->len; i++) {
        const PageRun *run = &g_array_index(runs, PageRun, i);

        if ((run->page + run->nr) * qemu_target_page_size() > rb->used_length) {
            return false;
        }
        bitmap_set(pages, run->page, run->nr);
    }
    return runs;
}

/* The run that has @page, which is in one */
static const PageRun *find_run(const GArray *runs, uint64_t page)
{
    unsigned low = 0, high = runs->len;

    while (high - low > 1) {
        unsigned middle = (low + high) / 2;

        if (g_array_index(runs, PageRun, middle).page <= page) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return &g_array_index(runs, PageRun, low);
}

/*
 * Read @nr pages from @page on, which are in @run, to @to, and check the heads
 * of their records; @buf has room for both.  Returns 0 or a negative errno.
 */
static int read_pages(ImageStore *s, BlockDriverState *bs, const PageRun *run,
                      uint64_t page, uint64_t nr, uint8_t *buf, uint8_t *to)
{
    size_t size = qemu_target_page_size(), step = RAM_RECORD + size;
    int64_t at = run->at - RAM_RECORD + (page - run->page) * step;
    size_t skip = page == run->page && run->named ? RAM_RECORD : 0;
    int ret = ram_reset_qcow2_read(bs, s->clusters, at + skip, nr * step - skip,
                                   buf + skip);

    for (uint64_t i = 0; i < nr && ret >= 0; i++) {
        if ((i || !skip) && ldq_be_p(buf + i * step) !=
            ((page + i) * size | RAM_SAVE_FLAG_PAGE | RAM_SAVE_FLAG_CONTINUE)) {
            return -EILSEQ;
        }
        memcpy(to + i * size, buf + i * step + RAM_RECORD, size);
    }
    return ret;
}

static bool check_snapshot(const ImageStore *s, BlockDriverState *bs,
                           Error **errp)
{
    if (bs && !ram_reset_snapshot_is_gone(bs, &s->info)) {
        return true;
    }
    error_setg(errp, "RAM of snapshot '%s' cannot be read: %s '%s' %s",
               s->info.name, bs ? "disk" : "node", s->node,
               bs ? "does not have it any more" : "is gone");
    return false;
}

static bool store_read(RamResetPageStore *store, const RAMBlock *rb,
                       const unsigned long *pages, uint8_t *to, Error **errp)
{
    ImageStore *s = (ImageStore *)store;
    size_t size = qemu_target_page_size();
    uint64_t all = rb->used_length / size;
    const GArray *runs = page_places_runs(s->places, rb);
    g_autofree uint8_t *buf = g_malloc(PAGES_AT_ONCE * (RAM_RECORD + size));
    BlockDriverState *bs = bdrv_find_node(s->node);
    uint64_t page, nr;

    if (!check_snapshot(s, bs, errp)) {
        return false;
    }
    for (page = find_first_bit(pages, all); page < all;
         page = find_next_bit(pages, all, page + nr)) {
        const PageRun *run = find_run(runs, page);
        uint64_t end = MIN(run->page + run->nr, page + PAGES_AT_ONCE);
        int ret;

        nr = find_next_zero_bit(pages, end, page) - page;
        ret = read_pages(s, bs, run, page, nr, buf, to + page * size);
        if (ret < 0) {
            error_setg_errno(errp, -ret, "Page %" PRIu64 " of RAM block '%s' "
                             "cannot be read from snapshot '%s' in '%s'", page,
                             rb->idstr, s->info.name, s->node);
            return false;
        }
    }
    return true;
}

static bool store_is_there(const RamResetPageStore *store)
{
    return bdrv_find_node(((const ImageStore *)store)->node);
}

static bool store_is_of(const RamResetPageStore *store, BlockDriverState *bs,
                        const char *id, const char *name)
{
    const ImageStore *s = (const ImageStore *)store;
    BlockDriverState *mine = bdrv_find_node(s->node);

    return mine && ram_reset_qcow2_same(bs, mine) &&
           (!id || !strcmp(id, s->info.id_str)) &&
           (!name || !strcmp(name, s->info.name));
}

static void store_free(RamResetPageStore *store)
{
    ImageStore *s = (ImageStore *)store;

    page_places_free(s->places);
    ram_reset_qcow2_places_free(s->clusters);
    g_free(s->node);
    g_free(s->parent.id);
    g_free(s);
}

RamResetPageStore *page_store_new(BlockDriverState *bs, PagePlaces *places)
{
    g_autoptr(PagePlaces) p = places;
    Qcow2Places *clusters;
    ImageStore *s;

    if (!p ||
        !page_places_have_all(p, ram_bytes_total() / qemu_target_page_size())) {
        return NULL;
    }
    clusters = ram_reset_qcow2_find_vmstate(bs, page_places_end(p));
    if (!clusters) {
        return NULL;
    }
    s = g_new0(ImageStore, 1);
    s->parent = (RamResetPageStore) {
        .find = store_find,
        .read = store_read,
        .is_there = store_is_there,
        .is_of = store_is_of,
        .free = store_free,
    };
    s->node = g_strdup(bdrv_get_node_name(bs));
    s->places = g_steal_pointer(&p);
    s->clusters = clusters;
    return &s->parent;
}

void page_store_set_snapshot(RamResetPageStore *store,
                             const RamResetSnapshot *snapshot)
{
    if (store) {
        store->id = g_strdup(snapshot->key);
        ((ImageStore *)store)->info = snapshot->info;
    }
}
