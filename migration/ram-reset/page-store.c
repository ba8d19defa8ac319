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
#include "exec/target_page.h"
#include "system/ram-reset-compat.h"
#include "migration/ram-reset/page-store.h"
#include "migration/ram-reset/qcow2.h"
#include "migration/ram-reset/vmstate/format.h"

/* Pages that are read at once */
#define PAGES_AT_ONCE   256

typedef struct ImageStore {
    RamResetPageStore parent;

    unsigned refs;
    char *node;                 /* name of the node with the image */
    QEMUSnapshotInfo info;
    PagePlaces *places;
    Qcow2Places *clusters;      /* of the VM state */
} ImageStore;

/* @buf: room for PAGES_AT_ONCE records and a name; @to: with the block's layout */
typedef struct PageRead {
    const ImageStore *store;
    BlockDriverState *bs;
    const char *name;
    uint8_t *buf, *to;
} PageRead;

static bool store_find(RamResetPageStore *store, const RAMBlock *rb,
                       unsigned long *pages)
{
    ImageStore *s = (ImageStore *)store;
    const GArray *runs = page_places_runs(s->places, rb->idstr);

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
 * Read @nr pages from @page on, which are in @run, and check the heads of their
 * records.  Returns 0 or a negative errno.
 */
static int read_pages(const PageRead *r, const PageRun *run, uint64_t page,
                      uint64_t nr)
{
    size_t size = qemu_target_page_size(), step = RAM_RECORD + size;
    int64_t at = run->at + (page - run->page) * step;
    /* A name may lie in front of the first page of a run */
    bool named = page == run->page && run->named;
    size_t head = RAM_RECORD + (named ? 1 + strlen(r->name) : 0);
    uint8_t *content = r->buf + head;
    int ret;

    ret = ram_reset_qcow2_read(r->bs, r->store->clusters, at - head,
                               head + nr * step - RAM_RECORD, r->buf);
    for (uint64_t i = 0; i < nr && ret >= 0; i++, content += step) {
        if (!page_places_has_head(content, content - r->buf, page + i,
                                  named && !i ? r->name : NULL)) {
            return -EILSEQ;
        }
        memcpy(r->to + (page + i) * size, content, size);
    }
    return ret;
}

bool page_store_has_snapshot(const RamResetPageStore *store)
{
    const ImageStore *s = (const ImageStore *)store;
    BlockDriverState *bs = bdrv_find_node(s->node);

    return bs && !ram_reset_snapshot_is_gone(bs, &s->info);
}

static bool check_snapshot(const ImageStore *s, BlockDriverState *bs,
                           Error **errp)
{
    if (page_store_has_snapshot(&s->parent)) {
        return true;
    }
    error_setg(errp, "snapshot '%s' cannot be read: node '%s' %s", s->info.name,
               s->node, bs ? "does not have it any more" : "is gone");
    return false;
}

static bool read_runs(const PageRead *r, const GArray *runs,
                      const unsigned long *pages, uint64_t all, Error **errp)
{
    uint64_t page, nr;

    for (page = find_first_bit(pages, all); page < all;
         page = find_next_bit(pages, all, page + nr)) {
        const PageRun *run = find_run(runs, page);
        uint64_t end = MIN(run->page + run->nr, page + PAGES_AT_ONCE);
        int ret;

        nr = find_next_zero_bit(pages, end, page) - page;
        ret = read_pages(r, run, page, nr);
        if (ret < 0) {
            error_setg(errp, "page %" PRIu64 " cannot be read from snapshot "
                       "'%s' in '%s': %s", page, r->store->info.name,
                       r->store->node, ret == -EILSEQ
                       ? "the image has other data there" : g_strerror(-ret));
            return false;
        }
    }
    return true;
}

static bool store_read(RamResetPageStore *store, const RAMBlock *rb,
                       const char *name, const unsigned long *pages,
                       uint64_t nr, uint8_t *to, Error **errp)
{
    ImageStore *s = (ImageStore *)store;
    g_autofree uint8_t *buf =
        g_malloc(PAGES_AT_ONCE * (RAM_RECORD + qemu_target_page_size()) +
                 VMSTATE_NAME);
    PageRead r = {
        .store = s, .bs = bdrv_find_node(s->node), .name = name,
        .buf = buf, .to = to,
    };
    bool ok;

    if (!check_snapshot(s, r.bs, errp)) {
        return false;
    }
    /* A poll for I/O may end the job that has the node */
    bdrv_ref(r.bs);
    ok = read_runs(&r, page_places_runs(s->places, name), pages, nr, errp);
    bdrv_unref(r.bs);
    return ok;
}

static bool store_is_there(const RamResetPageStore *store)
{
    return bdrv_find_node(((const ImageStore *)store)->node);
}

static bool store_is_of(const RamResetPageStore *store, BlockDriverState *bs,
                        const char *id, const char *name)
{
    const ImageStore *s = (const ImageStore *)store;
    const char *node = ram_reset_qcow2_node(bs);

    return node && !strcmp(node, s->node) &&
           (!id || !strcmp(id, s->info.id_str)) &&
           (!name || !strcmp(name, s->info.name));
}

static void store_free(RamResetPageStore *store)
{
    ImageStore *s = (ImageStore *)store;

    if (--s->refs) {
        return;
    }
    page_places_free(s->places);
    ram_reset_qcow2_places_free(s->clusters);
    g_free(s->node);
    g_free(s->parent.id);
    g_free(s);
}

/* Takes over @places and @clusters */
static RamResetPageStore *store_new(BlockDriverState *bs, PagePlaces *places,
                                    Qcow2Places *clusters)
{
    ImageStore *s = g_new0(ImageStore, 1);

    s->parent = (RamResetPageStore) {
        .find = store_find,
        .read = store_read,
        .is_there = store_is_there,
        .is_of = store_is_of,
        .free = store_free,
    };
    s->refs = 1;
    s->node = g_strdup(ram_reset_qcow2_node(bs));
    s->places = places;
    s->clusters = clusters;
    return &s->parent;
}

static bool store_has_all(PagePlaces *p)
{
    return p && page_places_have_all(p, ram_bytes_total() /
                                        qemu_target_page_size());
}

RamResetPageStore *page_store_new(BlockDriverState *bs, PagePlaces *places)
{
    g_autoptr(PagePlaces) p = places;
    Qcow2Places *clusters;

    if (!store_has_all(p)) {
        return NULL;
    }
    clusters = ram_reset_qcow2_find_vmstate(bs, page_places_end(p));
    return clusters ? store_new(bs, g_steal_pointer(&p), clusters) : NULL;
}

RamResetPageStore *page_store_of_stored(BlockDriverState *bs,
                                        const RamResetSnapshot *snapshot,
                                        PagePlaces *places,
                                        Qcow2Places *clusters)
{
    RamResetPageStore *store;

    if (!store_has_all(places)) {
        page_places_free(places);
        ram_reset_qcow2_places_free(clusters);
        return NULL;
    }
    store = store_new(bs, places, clusters);
    page_store_set_snapshot(store, snapshot);
    return store;
}

RamResetPageStore *page_store_ref(RamResetPageStore *store)
{
    if (store) {
        ((ImageStore *)store)->refs++;
    }
    return store;
}

const PagePlaces *page_store_places(const RamResetPageStore *store)
{
    return ((const ImageStore *)store)->places;
}

const Qcow2Places *page_store_clusters(const RamResetPageStore *store)
{
    return ((const ImageStore *)store)->clusters;
}

void page_store_set_snapshot(RamResetPageStore *store,
                             const RamResetSnapshot *snapshot)
{
    if (store) {
        store->id = g_strdup(snapshot->key);
        ((ImageStore *)store)->info = snapshot->info;
    }
}
