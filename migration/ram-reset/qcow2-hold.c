/*
 * Holding clusters of a snapshot in a qcow2 image
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "block/block_int.h"
#include "block/qcow2.h"
#include "migration/ram-reset/qcow2-hold.h"
#include "migration/ram-reset/qcow2-locked.h"

/*
 * Each load and save of a snapshot adds references for a moment: with narrow
 * refcounts they would be refused if there were many already.  16 bits are the
 * default.
 */
#define HOLD_MIN_ORDER 4

struct Qcow2Hold {
    BlockDriverState *bs;       /* a reference */
    uint64_t *clusters;
    uint64_t nr, held;
    uint64_t released;          /* of the first ones; or they stay for good */
    const GArray *but;          /* while they are released */
};

Qcow2Hold *qcow2_hold_new(BlockDriverState *bs, uint64_t *clusters,
                          uint64_t nr)
{
    Qcow2Hold *h = g_new0(Qcow2Hold, 1);

    bdrv_ref(bs);
    h->bs = bs;
    h->clusters = clusters;
    h->nr = nr;
    return h;
}

bool qcow2_hold_is_complete(const Qcow2Hold *h)
{
    return h->held == h->nr;
}

const uint64_t *qcow2_hold_clusters(const Qcow2Hold *h)
{
    return h->clusters;
}

static int coroutine_fn GRAPH_RDLOCK hold_co_one(BlockDriverState *bs,
                                                 uint64_t cluster)
{
    BDRVQcow2State *s = bs->opaque;
    int64_t index = cluster >> s->cluster_bits;
    uint64_t refcount;
    int ret = qcow2_get_refcount(bs, index, &refcount);

    if (ret < 0) {
        return ret;
    }
    if (!refcount || refcount > s->refcount_max / 2) {
        return -ERANGE;
    }
    return qcow2_update_cluster_refcount(bs, index, 1, false,
                                         QCOW2_DISCARD_NEVER);
}

static int coroutine_fn GRAPH_RDLOCK hold_co_next(BlockDriverState *bs,
                                                  void *opaque)
{
    Qcow2Hold *h = opaque;
    BDRVQcow2State *s = bs->opaque;
    uint64_t end = MIN(h->nr, h->held + QCOW2_AT_ONCE);
    int ret = ram_reset_qcow2_may_change(bs);

    if (s->refcount_order < HOLD_MIN_ORDER || has_data_file(bs)) {
        ret = -ENOTSUP;
    }
    for (; ret >= 0 && h->held < end; h->held += ret >= 0) {
        ret = hold_co_one(bs, h->clusters[h->held]);
    }
    return MIN(ret, 0);
}

int qcow2_hold_next(Qcow2Hold *h)
{
    return ram_reset_qcow2_locked(h->bs, hold_co_next, h);
}

int coroutine_fn qcow2_hold_co_read(const Qcow2Hold *h, const GArray *list,
                                    uint8_t *buf)
{
    const uint64_t *nr = (const uint64_t *)list->data, *at = h->clusters;
    unsigned n = 1;

    GRAPH_RDLOCK_GUARD();

    for (unsigned i = 0; i < list->len; i += n) {
        int ret = -ENOMEDIUM;
        uint64_t size = 0;

        if (h->bs->drv && h->bs->file) {
            size = ((BDRVQcow2State *)h->bs->opaque)->cluster_size;
            /* Clusters that follow each other in the file are read at once */
            n = 1;
            while (i + n < list->len &&
                   at[nr[i + n]] == at[nr[i]] + n * size) {
                n++;
            }
            ret = bdrv_co_pread(h->bs->file, at[nr[i]], n * size, buf, 0);
        }
        if (ret < 0) {
            return ret;
        }
        buf += n * size;
    }
    return 0;
}

static bool hold_stays(const Qcow2Hold *h, uint64_t i)
{
    return h->but && i < h->but->len &&
           g_array_index(h->but, uint64_t, i) == h->clusters[i];
}

/* Clusters that follow each other in the file are released at once */
static int coroutine_fn GRAPH_RDLOCK hold_co_release(BlockDriverState *bs,
                                                     void *opaque)
{
    Qcow2Hold *h = opaque;
    BDRVQcow2State *s = bs->opaque;
    uint64_t end = MIN(h->held, h->released + QCOW2_AT_ONCE);
    uint64_t start = 0, bytes = 0;
    int ret = ram_reset_qcow2_may_change(bs);

    if (ret < 0) {
        return ret;
    }
    for (uint64_t i = h->released; i <= end && bs->drv; i++) {
        bool ends = i == end || hold_stays(h, i);

        if (bytes && (ends || h->clusters[i] != start + bytes)) {
            qcow2_free_clusters(bs, start, bytes, QCOW2_DISCARD_OTHER);
            bytes = 0;
        }
        if (!ends) {
            start = bytes ? start : h->clusters[i];
            bytes += s->cluster_size;
        }
    }
    h->released = end;
    return 0;
}

bool qcow2_hold_release_next(Qcow2Hold *h, const GArray *but)
{
    h->but = but;
    if (h->released < h->held &&
        ram_reset_qcow2_locked(h->bs, hold_co_release, h) < 0) {
        /* References in an image that another QEMU has now leak */
        h->released = h->held;
    }
    return h->released < h->held;
}

/* Let those leak that have been released */
static int coroutine_fn GRAPH_RDLOCK hold_co_leak(BlockDriverState *bs,
                                                  void *opaque)
{
    const Qcow2Hold *h = opaque;
    BDRVQcow2State *s = bs->opaque;

    for (uint64_t i = 0; i < h->held && bs->drv; i++) {
        if (!hold_stays(h, i)) {
            qcow2_update_cluster_refcount(bs, h->clusters[i] >> s->cluster_bits,
                                          1, false, QCOW2_DISCARD_NEVER);
        }
    }
    return 0;
}

static int hold_mark_active(BlockDriverState *bs)
{
    int ret = 0;

    bdrv_drained_begin(bs);
    bdrv_graph_rdlock_main_loop();
    if (bs->drv && ram_reset_qcow2_may_change(bs) >= 0) {
        BDRVQcow2State *s = bs->opaque;

        ret = qcow2_update_snapshot_refcount(bs, s->l1_table_offset,
                                             s->l1_size, 0);
    }
    bdrv_graph_rdunlock_main_loop();
    bdrv_drained_end(bs);
    return ret;
}

void qcow2_hold_free(Qcow2Hold *h, bool gone)
{
    assert(h->released == h->held);
    /*
     * A deletion gives QCOW_OFLAG_COPIED to entries of the active layer whose
     * cluster has one reference left, and so has left out those that were held.
     */
    if (h->held && gone && hold_mark_active(h->bs) < 0) {
        ram_reset_qcow2_locked(h->bs, hold_co_leak, h);
        hold_mark_active(h->bs);
    }
    bdrv_unref(h->bs);
    g_free(h->clusters);
    g_free(h);
}
