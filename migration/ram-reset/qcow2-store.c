/*
 * Storing a VM state in a qcow2 image behind the guest's back
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qapi/error.h"
#include "qemu/bswap.h"
#include "qemu/memalign.h"
#include "qemu/units.h"
#include "block/block_int.h"
#include "block/qcow2.h"
#include "migration/ram-reset/qcow2-locked.h"
#include "migration/ram-reset/qcow2-store.h"

/*
 * QEMU writes a VM state to the active layer, and then makes a snapshot of
 * that.  Here the snapshot exists, and the VM state has L2 tables of its own.
 * At the end the snapshot gets an L1 table that has these, too.  Only the
 * active layer needs QCOW_OFLAG_COPIED, see docs/interop/qcow2.rst: going to
 * the snapshot sets it where it is right.
 */

/* Small enough that a vCPU does not wait long for the BQL */
#define STORE_PIECE (512 * KiB)

typedef struct StoreRun {
    int64_t offset;             /* in the file; bytes */
    uint64_t bytes;
} StoreRun;

struct Qcow2Store {
    BlockDriverState *bs;       /* the qcow2 image; holds a reference */
    GArray *clusters;           /* uint64_t: of the VM state, in the file */
    GArray *pieces;             /* StoreRun: those it has allocated, and tables */
    int64_t tables;             /* offset of the L2 tables in the file; bytes */
    int nb_tables;
    bool attached;
};

/* The room that was found last */
static const StoreRun *store_last(const Qcow2Store *store)
{
    return &g_array_index(store->pieces, StoreRun, store->pieces->len - 1);
}

static int coroutine_fn GRAPH_RDLOCK store_co_allocate(BlockDriverState *bs,
                                                       void *opaque)
{
    StoreRun *run = opaque;
    int ret = ram_reset_qcow2_may_change(bs);

    if (ret < 0) {
        return ret;
    }
    run->offset = qcow2_alloc_clusters(bs, run->bytes);
    if (run->offset < 0) {
        return run->offset;
    }
    ret = qcow2_pre_write_overlap_check(bs, 0, run->offset, run->bytes, false);
    if (ret < 0 && bs->drv) {
        qcow2_free_clusters(bs, run->offset, run->bytes, QCOW2_DISCARD_OTHER);
    }
    return ret;
}

/* From the last piece on */
static int coroutine_fn GRAPH_RDLOCK store_co_release(BlockDriverState *bs,
                                                      void *opaque)
{
    Qcow2Store *store = opaque;
    BDRVQcow2State *s = bs->opaque;
    uint64_t most = (uint64_t)QCOW2_AT_ONCE * s->cluster_size, bytes = 0;
    int ret = ram_reset_qcow2_may_change(bs);

    /* Clusters of an image that another QEMU has now leak */
    if (ret < 0) {
        return ret;
    }
    while (store->pieces->len && bytes < most && bs->drv) {
        const StoreRun *run = store_last(store);

        qcow2_free_clusters(bs, run->offset, run->bytes, QCOW2_DISCARD_OTHER);
        bytes += run->bytes;
        g_array_set_size(store->pieces, store->pieces->len - 1);
    }
    /* A damaged image may have been closed */
    return bs->drv ? 0 : -ENOMEDIUM;
}

static bool store_allocate(Qcow2Store *store, uint64_t bytes, Error **errp)
{
    StoreRun run = { .bytes = bytes };
    int ret = ram_reset_qcow2_locked(store->bs, store_co_allocate, &run);

    if (ret < 0) {
        error_setg_errno(errp, -ret, "The image has no room for the VM state");
        return false;
    }
    g_array_append_val(store->pieces, run);
    return true;
}

Qcow2Store *qcow2_store_new(BlockDriverState *bs, Error **errp)
{
    BlockDriverState *image;
    Qcow2Store *store;

    GRAPH_RDLOCK_GUARD_MAINLOOP();

    image = ram_reset_qcow2_image(bs);
    if (!image || image->encrypted) {
        error_setg(errp, "'%s' is no qcow2 image, or one with encryption: a "
                   "snapshot in memory cannot be stored there",
                   bdrv_get_device_or_node_name(bs));
        return NULL;
    }
    store = g_new0(Qcow2Store, 1);
    store->bs = image;
    store->clusters = g_array_new(false, false, sizeof(uint64_t));
    store->pieces = g_array_new(false, false, sizeof(StoreRun));
    bdrv_ref(image);
    return store;
}

bool qcow2_store_release_next(Qcow2Store *store)
{
    return !store->attached && store->pieces->len &&
           ram_reset_qcow2_locked(store->bs, store_co_release, store) >= 0 &&
           store->pieces->len;
}

void qcow2_store_free(Qcow2Store *store)
{
    g_array_unref(store->clusters);
    g_array_unref(store->pieces);
    bdrv_unref(store->bs);
    g_free(store);
}

size_t qcow2_store_piece(const Qcow2Store *store)
{
    BDRVQcow2State *s = store->bs->opaque;

    return MAX(STORE_PIECE, s->cluster_size);
}

size_t qcow2_store_cluster(const Qcow2Store *store)
{
    return ((BDRVQcow2State *)store->bs->opaque)->cluster_size;
}

BlockDriverState *qcow2_store_image(const Qcow2Store *store)
{
    return store->bs;
}

Qcow2Places *qcow2_store_places(const Qcow2Store *store)
{
    return ram_reset_qcow2_places_new(qcow2_store_cluster(store),
                                      store->clusters);
}

bool qcow2_store_next(Qcow2Store *store, uint64_t bytes, Error **errp)
{
    if (!store_allocate(store, bytes, errp)) {
        return false;
    }
    for (uint64_t at = 0; at < bytes; at += qcow2_store_cluster(store)) {
        uint64_t cluster = store_last(store)->offset + at;

        g_array_append_val(store->clusters, cluster);
    }
    return true;
}

void qcow2_store_share(Qcow2Store *store, const uint64_t *clusters,
                       uint64_t nr)
{
    assert(!store->clusters->len);
    g_array_append_vals(store->clusters, clusters, nr);
}

const GArray *qcow2_store_attached(const Qcow2Store *store)
{
    return store->attached ? store->clusters : NULL;
}

bool qcow2_store_replace(Qcow2Store *store, const GArray *list, Error **errp)
{
    size_t size = qcow2_store_cluster(store);

    if (!store_allocate(store, list->len * size, errp)) {
        return false;
    }
    for (unsigned i = 0; i < list->len; i++) {
        g_array_index(store->clusters, uint64_t,
                      g_array_index(list, uint64_t, i)) =
            store_last(store)->offset + i * size;
    }
    return true;
}

/* All entries of all tables lie one after another */
static void store_fill_tables(const Qcow2Store *store, uint64_t *entries)
{
    BDRVQcow2State *s = store->bs->opaque;

    for (unsigned i = 0; i < store->clusters->len; i++) {
        *entries++ = cpu_to_be64(g_array_index(store->clusters, uint64_t, i));
        if (has_subclusters(s)) {
            *entries++ = cpu_to_be64(QCOW_L2_BITMAP_ALL_ALLOC);
        }
    }
}

bool qcow2_store_tables(Qcow2Store *store, uint8_t **tables, uint64_t *bytes,
                        Error **errp)
{
    BDRVQcow2State *s = store->bs->opaque;

    store->nb_tables = DIV_ROUND_UP(store->clusters->len, s->l2_size);
    *bytes = (uint64_t)store->nb_tables * s->cluster_size;
    if (!store_allocate(store, *bytes, errp)) {
        return false;
    }
    store->tables = store_last(store)->offset;
    *tables = qemu_blockalign0(store->bs, *bytes);
    store_fill_tables(store, (uint64_t *)*tables);
    return true;
}

int coroutine_fn qcow2_store_co_write(Qcow2Store *store, const uint8_t *buf,
                                      uint64_t bytes)
{
    GRAPH_RDLOCK_GUARD();

    if (!store->bs->drv || !store->bs->file) {
        return -ENOMEDIUM;
    }
    if (ram_reset_qcow2_may_change(store->bs) < 0) {
        return -EPERM;
    }
    assert(bytes == store_last(store)->bytes);
    return bdrv_co_pwrite(store->bs->file, store_last(store)->offset, bytes,
                          buf, 0);
}

void qcow2_store_count(const Qcow2Store *store, uint64_t *shared, uint64_t *own)
{
    *own = 0;
    for (unsigned i = 0; i < store->pieces->len; i++) {
        *own += g_array_index(store->pieces, StoreRun, i).bytes /
                qcow2_store_cluster(store);
    }
    *shared = store->clusters->len + store->nb_tables - *own;
}

int coroutine_fn qcow2_store_co_flush(Qcow2Store *store)
{
    GRAPH_RDLOCK_GUARD();

    return store->bs->drv ? bdrv_co_flush(store->bs) : -ENOMEDIUM;
}

static QCowSnapshot *store_find(BDRVQcow2State *s, const QEMUSnapshotInfo *sn)
{
    for (unsigned i = 0; i < s->nb_snapshots; i++) {
        QCowSnapshot *q = &s->snapshots[i];

        if (!strcmp(q->id_str, sn->id_str) && !strcmp(q->name, sn->name) &&
            q->date_sec == sn->date_sec && q->date_nsec == sn->date_nsec &&
            !q->vm_state_size) {
            return q;
        }
    }
    return NULL;
}

/* Write the L1 table of @q with the tables of @store; fills in @new */
static int GRAPH_RDLOCK store_write_l1(Qcow2Store *store, const QCowSnapshot *q,
                                       QCowSnapshot *new)
{
    BlockDriverState *bs = store->bs;
    BDRVQcow2State *s = bs->opaque;
    uint64_t first = size_to_l1(s, q->disk_size);
    uint64_t bytes = (first + store->nb_tables) * L1E_SIZE;
    g_autofree uint64_t *l1 = bytes > QCOW_MAX_L1_SIZE ? NULL
                                                       : g_try_malloc0(bytes);
    int ret;

    if (!l1) {
        return bytes > QCOW_MAX_L1_SIZE ? -EFBIG : -ENOMEM;
    }
    ret = bdrv_pread(bs->file, q->l1_table_offset,
                     MIN(first, q->l1_size) * L1E_SIZE, l1, 0);
    if (ret < 0) {
        return ret;
    }
    for (int64_t i = 0; i < store->nb_tables; i++) {
        l1[first + i] = cpu_to_be64(store->tables + i * s->cluster_size);
    }
    new->l1_size = first + store->nb_tables;
    new->l1_table_offset = qcow2_alloc_clusters(bs, bytes);
    if ((int64_t)new->l1_table_offset < 0) {
        return (int64_t)new->l1_table_offset;
    }
    ret = qcow2_pre_write_overlap_check(bs, 0, new->l1_table_offset, bytes,
                                        false) ?:
          bdrv_pwrite(bs->file, new->l1_table_offset, bytes, l1, 0);
    if (ret < 0 && bs->drv) {
        qcow2_free_clusters(bs, new->l1_table_offset, bytes,
                            QCOW2_DISCARD_OTHER);
    }
    return ret;
}

/*
 * Free what only the old L1 table had: tables of an earlier VM state in the
 * active layer.  An error leaves clusters allocated.
 */
static void GRAPH_RDLOCK store_free_old(BlockDriverState *bs,
                                        const QCowSnapshot *old)
{
    BDRVQcow2State *s = bs->opaque;
    uint64_t first = size_to_l1(s, old->disk_size);

    if (old->l1_size > first) {
        int64_t tail = old->l1_table_offset + first * L1E_SIZE;
        int size = old->l1_size - first;

        qcow2_update_snapshot_refcount(bs, tail, size, -1);
        if (qcow2_update_snapshot_refcount(bs, s->l1_table_offset, s->l1_size,
                                           0) < 0 && bs->drv) {
            /* The image lacks QCOW_OFLAG_COPIED, so let the clusters leak */
            qcow2_update_snapshot_refcount(bs, tail, size, 1);
            qcow2_update_snapshot_refcount(bs, s->l1_table_offset, s->l1_size,
                                           0);
        }
    }
    if (bs->drv) {
        qcow2_free_clusters(bs, old->l1_table_offset, old->l1_size * L1E_SIZE,
                            QCOW2_DISCARD_SNAPSHOT);
    }
}

static int GRAPH_RDLOCK store_attach(Qcow2Store *store,
                                     const QEMUSnapshotInfo *sn, uint64_t size)
{
    BlockDriverState *bs = store->bs;
    BDRVQcow2State *s = bs->opaque;
    QCowSnapshot *q = bs->drv ? store_find(s, sn) : NULL;
    QCowSnapshot old, new;
    int ret = q ? ram_reset_qcow2_may_change(bs) : -ENOENT;

    if (ret < 0) {
        return ret;
    }
    old = new = *q;
    ret = store_write_l1(store, q, &new);
    if (ret < 0) {
        return ret;
    }
    new.vm_state_size = size;
    *q = new;
    ret = qcow2_write_snapshots(bs);
    if (ret >= 0) {
        store->attached = true;
        store_free_old(bs, &old);
        return 0;
    }
    /* The list in the image may be the new one, unless another is written */
    *q = old;
    store->attached = !bs->drv || qcow2_write_snapshots(bs) < 0;
    if (!store->attached) {
        qcow2_free_clusters(bs, new.l1_table_offset, new.l1_size * L1E_SIZE,
                            QCOW2_DISCARD_OTHER);
    }
    return ret;
}

bool qcow2_store_attach(Qcow2Store *store, const QEMUSnapshotInfo *sn,
                        uint64_t size, Error **errp)
{
    int ret;

    bdrv_drained_begin(store->bs);
    bdrv_graph_rdlock_main_loop();
    ret = store_attach(store, sn, size);
    bdrv_graph_rdunlock_main_loop();
    bdrv_drained_end(store->bs);
    if (ret < 0) {
        error_setg_errno(errp, -ret, "The VM state could not be attached to "
                         "snapshot '%s'", sn->name);
    }
    return ret >= 0;
}
