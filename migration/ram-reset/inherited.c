/*
 * Snapshots that a disk has from its backing file
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qapi/error.h"
#include "block/block_int.h"
#include "system/ram-reset-at-snapshot.h"
#include "migration/ram-reset/inherited.h"
#include "migration/ram-reset/qcow2.h"

static BlockDriverState *GRAPH_RDLOCK backing_of(BlockDriverState *bs)
{
    BlockDriverState *image = ram_reset_qcow2_image(bs);

    return image ? bdrv_backing_chain_next(image) : NULL;
}

BlockDriverState *ram_reset_inherited(BlockDriverState *bs, const char *name,
                                      QEMUSnapshotInfo *sn)
{
    BlockDriverState *node;

    GRAPH_RDLOCK_GUARD_MAINLOOP();

    node = backing_of(bs);
    return node && ram_reset_shown_snapshot(node, sn) && !strcmp(sn->name, name)
           ? node : NULL;
}

bool ram_reset_check_inherited(BlockDriverState *bs, BlockDriverState *node,
                               Error **errp)
{
    ERRP_GUARD();
    const char *disk = bdrv_get_device_or_node_name(bs);
    int64_t size, wanted;

    GRAPH_RDLOCK_GUARD_MAINLOOP();

    size = bdrv_getlength(bs);
    wanted = bdrv_getlength(node);
    if (size != wanted) {
        error_setg(errp, "Disk '%s' cannot be reverted, nothing has been "
                   "changed: it has %" PRId64 " bytes, and had %" PRId64
                   " in the snapshot of its backing file", disk, size, wanted);
        error_append_hint(errp, "Make a new overlay, and give no size.\n");
        return false;
    }
    if (!ram_reset_qcow2_may_empty(bs)) {
        error_setg(errp, "Disk '%s' cannot be reverted, nothing has been "
                   "changed: its data is in an external data file", disk);
        error_append_hint(errp, "Make a new overlay without data_file.\n");
        return false;
    }
    return true;
}

bool ram_reset_backing_has(BlockDriverState *bs, const char *name)
{
    BlockDriverState *node;
    QEMUSnapshotInfo sn;

    GRAPH_RDLOCK_GUARD_MAINLOOP();

    node = backing_of(bs);
    return node && bdrv_snapshot_find(node, &sn, name) >= 0;
}
