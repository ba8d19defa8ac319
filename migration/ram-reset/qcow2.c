/*
 * QEMU's qcow2 driver, looked at from outside
 *
 * QEMU first writes a VM state to the active layer, and then makes a snapshot.
 * If the save fails in between, the clusters stay allocated.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qapi/error.h"
#include "qemu/cutils.h"
#include "qemu/host-utils.h"
#include "block/block_int.h"
#include "block/qcow2.h"
#include "migration/ram-reset/qcow2.h"

BlockDriverState *ram_reset_qcow2_image(BlockDriverState *bs)
{
    while (bs && bs->drv && strcmp(bs->drv->format_name, "qcow2")) {
        bs = bdrv_primary_bs(bs);
    }
    return bs && bs->drv ? bs : NULL;
}

int64_t ram_reset_qcow2_file_length(BlockDriverState *bs)
{
    GRAPH_RDLOCK_GUARD_MAINLOOP();

    bs = ram_reset_qcow2_image(bs);
    return bs ? bdrv_getlength(bs->file->bs) : -1;
}

int64_t ram_reset_qcow2_list_position(BlockDriverState *bs)
{
    GRAPH_RDLOCK_GUARD_MAINLOOP();

    bs = ram_reset_qcow2_image(bs);
    return bs ? ((BDRVQcow2State *)bs->opaque)->snapshots_offset : -1;
}

static void GRAPH_RDLOCK discard_vmstate(BlockDriverState *bs)
{
    BDRVQcow2State *s = bs->opaque;
    uint64_t step = UINT64_C(1) << (s->cluster_bits + s->l2_bits);

    /* A discard of clusters without an L2 table would allocate one */
    for (int i = s->l1_vm_state_index; i < s->l1_size; i++) {
        if ((s->l1_table[i] & L1E_OFFSET_MASK) &&
            (qcow2_cluster_discard(bs, i * step, step, QCOW2_DISCARD_SNAPSHOT,
                                   false) < 0 || !bs->drv)) {
            break;      /* a damaged image may have been closed */
        }
    }
}

void ram_reset_qcow2_clear_vmstate(BlockDriverState *bs)
{
    GRAPH_RDLOCK_GUARD_MAINLOOP();

    bs = ram_reset_qcow2_image(bs);
    if (bs) {
        discard_vmstate(bs);
    }
}

/* Returns the length that the file needs, in bytes; -1 if it is unknown */
static int64_t GRAPH_RDLOCK used_length(BlockDriverState *bs, int64_t length)
{
    BDRVQcow2State *s = bs->opaque;
    int64_t last = qcow2_get_last_cluster(bs, length);

    return last < 0 ? -1 : (last + 1) * s->cluster_size;
}

void ram_reset_qcow2_drop_vmstate(BlockDriverState *bs, int64_t file_length)
{
    int64_t length, used;

    GRAPH_RDLOCK_GUARD_MAINLOOP();

    bs = ram_reset_qcow2_image(bs);
    if (!bs || file_length < 0) {
        return;
    }
    discard_vmstate(bs);
    length = bdrv_getlength(bs->file->bs);
    /* Flush, so no table in the file refers to a cluster that is cut off */
    if (length <= file_length || bdrv_flush(bs) < 0) {
        return;
    }
    used = used_length(bs, length);
    if (used >= 0 && MAX(used, file_length) < length) {
        bdrv_truncate(bs->file, MAX(used, file_length), false,
                      PREALLOC_MODE_OFF, 0, NULL);
    }
}

bool ram_reset_qcow2_may_empty(BlockDriverState *bs)
{
    bs = ram_reset_qcow2_image(bs);
    return bs && !has_data_file(bs);
}

/* The same steps as of a revert to a snapshot whose L1 table names nothing */
int ram_reset_qcow2_empty(BlockDriverState *bs, bool *changed)
{
    g_autofree uint64_t *zeros = NULL;
    BDRVQcow2State *s;
    size_t size;
    int ret;

    GRAPH_RDLOCK_GUARD_MAINLOOP();

    bs = ram_reset_qcow2_image(bs);
    s = bs->opaque;
    size = s->l1_size * sizeof(s->l1_table[0]);
    if (buffer_is_zero(s->l1_table, size)) {
        return 0;
    }
    *changed = true;
    zeros = g_malloc0(size);
    ret = qcow2_pre_write_overlap_check(bs, QCOW2_OL_ACTIVE_L1,
                                        s->l1_table_offset, size, false);
    if (ret >= 0) {
        ret = bdrv_pwrite_sync(bs->file, s->l1_table_offset, size, zeros, 0);
    }
    if (ret < 0) {
        return ret;
    }
    /* Counts the clusters of the table in memory, which is the old one */
    ret = qcow2_update_snapshot_refcount(bs, s->l1_table_offset, s->l1_size,
                                         -1);
    memset(s->l1_table, 0, size);
    return ret;
}

struct Qcow2Places {
    unsigned cluster_bits;
    unsigned nr;
    uint64_t at[];              /* position of each cluster in the file */
};

/* Returns false if a part is not an ordinary cluster */
static bool GRAPH_RDLOCK find_clusters(BlockDriverState *bs, Qcow2Places *p,
                                       int64_t end)
{
    BDRVQcow2State *s = bs->opaque;
    int64_t start = (int64_t)s->l1_vm_state_index <<
                    (s->cluster_bits + s->l2_bits);
    int64_t pos = 0;

    while (pos < end) {
        unsigned bytes = MIN(end - pos, BDRV_REQUEST_MAX_BYTES);
        QCow2SubclusterType type;
        uint64_t at;

        if (qcow2_get_host_offset(bs, start + pos, &bytes, &at, &type) < 0 ||
            type != QCOW2_SUBCLUSTER_NORMAL || !bytes) {
            return false;
        }
        for (unsigned i = 0; i < bytes; ) {
            unsigned in_cluster = (pos + i) & (s->cluster_size - 1);

            p->at[(pos + i) >> s->cluster_bits] = at + i - in_cluster;
            i += s->cluster_size - in_cluster;
        }
        pos += bytes;
    }
    return true;
}

Qcow2Places *ram_reset_qcow2_find_vmstate(BlockDriverState *bs, int64_t end)
{
    BDRVQcow2State *s;
    Qcow2Places *p;
    unsigned nr;

    GRAPH_RDLOCK_GUARD_MAINLOOP();

    bs = ram_reset_qcow2_image(bs);
    if (!bs || bs->encrypted) {
        return NULL;
    }
    s = bs->opaque;
    nr = DIV_ROUND_UP(end, s->cluster_size);
    p = g_malloc0(sizeof(*p) + nr * sizeof(p->at[0]));
    p->cluster_bits = s->cluster_bits;
    p->nr = nr;
    if (!find_clusters(bs, p, end)) {
        g_clear_pointer(&p, g_free);
    }
    return p;
}

Qcow2Places *ram_reset_qcow2_places_new(size_t cluster_size,
                                        const GArray *clusters)
{
    Qcow2Places *p = g_malloc(sizeof(*p) + clusters->len * sizeof(p->at[0]));

    p->cluster_bits = ctz64(cluster_size);
    p->nr = clusters->len;
    memcpy(p->at, clusters->data, clusters->len * sizeof(p->at[0]));
    return p;
}

void ram_reset_qcow2_places_free(Qcow2Places *places)
{
    g_free(places);
}

uint64_t *ram_reset_qcow2_places_copy(const Qcow2Places *p, uint64_t nr)
{
    assert(nr <= p->nr);
    return g_memdup2(p->at, nr * sizeof(p->at[0]));
}

int ram_reset_qcow2_read(BlockDriverState *bs, const Qcow2Places *p, int64_t at,
                         size_t len, uint8_t *buf)
{
    uint64_t size = UINT64_C(1) << p->cluster_bits;

    GRAPH_RDLOCK_GUARD_MAINLOOP();

    bs = ram_reset_qcow2_image(bs);
    if (!bs) {
        return -ENOMEDIUM;
    }
    while (len) {
        uint64_t from = p->at[at >> p->cluster_bits] + (at & (size - 1));
        uint64_t end = from + size - (at & (size - 1)), n;
        int ret;

        /* Clusters that follow each other in the file are read at once */
        for (int64_t next = (at >> p->cluster_bits) + 1;
             end - from < len && next < p->nr && p->at[next] == end; next++) {
            end += size;
        }
        n = MIN(len, end - from);
        ret = bdrv_pread(((BDRVQcow2State *)bs->opaque)->data_file, from, n, buf,
                         0);
        if (ret < 0) {
            return ret;
        }
        at += n;
        buf += n;
        len -= n;
    }
    return 0;
}

const char *ram_reset_qcow2_node(BlockDriverState *bs)
{
    GRAPH_RDLOCK_GUARD_MAINLOOP();

    bs = ram_reset_qcow2_image(bs);
    return bs ? bdrv_get_node_name(bs) : NULL;
}
