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
#include "block/block_int.h"
#include "block/qcow2.h"
#include "migration/ram-reset/qcow2.h"

/* Returns the qcow2 image with the VM state of @bs; NULL if there is none */
static BlockDriverState *GRAPH_RDLOCK find_image(BlockDriverState *bs)
{
    while (bs && bs->drv && strcmp(bs->drv->format_name, "qcow2")) {
        bs = bdrv_primary_bs(bs);
    }
    return bs && bs->drv ? bs : NULL;
}

int64_t ram_reset_qcow2_file_length(BlockDriverState *bs)
{
    GRAPH_RDLOCK_GUARD_MAINLOOP();

    bs = find_image(bs);
    return bs ? bdrv_getlength(bs->file->bs) : -1;
}

int64_t ram_reset_qcow2_list_position(BlockDriverState *bs)
{
    GRAPH_RDLOCK_GUARD_MAINLOOP();

    bs = find_image(bs);
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

    bs = find_image(bs);
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

    bs = find_image(bs);
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
