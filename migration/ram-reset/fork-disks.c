/*
 * The disks of a machine that is forked
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qapi/error.h"
#include "qapi/qapi-commands-transaction.h"
#include "block/block_int.h"
#include "system/block-backend.h"
#include "migration/ram-reset/fork-disks.h"

static const RamResetForkDisk *
fork_find_disk(const RamResetForkDiskList *disks, const char *node)
{
    for (; disks; disks = disks->next) {
        if (!strcmp(disks->value->node, node)) {
            return disks->value;
        }
    }
    return NULL;
}

/* The disk keeps its size in a machine that writes to the overlay */
static bool GRAPH_RDLOCK
fork_check_overlay(BlockDriverState *bs, const char *name, Error **errp)
{
    BlockDriverState *overlay = bdrv_find_node(name);
    int64_t size = bdrv_getlength(bs);

    if (!overlay) {
        error_setg(errp, "There is no block node '%s'", name);
    } else if (size < 0 || bdrv_getlength(overlay) != size) {
        error_setg(errp, "Overlay '%s' does not have the %" PRId64 " bytes of "
                   "disk '%s'", name, size, bdrv_get_node_name(bs));
    } else {
        return true;
    }
    return false;
}

static bool GRAPH_RDLOCK
fork_check_disk(const RamResetForkDiskList *disks, BlockDriverState *bs,
                Error **errp)
{
    const char *name = bdrv_get_device_or_node_name(bs);
    const RamResetForkDisk *disk = fork_find_disk(disks,
                                                  bdrv_get_node_name(bs));

    if (bs->drv->is_filter || bs->copy_on_read) {
        /* A base would stay locked by it */
        error_setg(errp, "Disk '%s' has a filter, '%s'; remove it first", name,
                   bs->copy_on_read ? "copy-on-read" : bs->drv->format_name);
        return false;
    }
    if (!disk) {
        error_setg(errp, "'disks' has no overlay for disk '%s', node '%s'",
                   name, bdrv_get_node_name(bs));
        return false;
    }
    return fork_check_overlay(bs, disk->overlay, errp);
}

/*
 * Such a user would write to an overlay while its machine stands, which QEMU
 * refuses at the end of a migration only.
 */
static bool fork_check_user(BlockBackend *blk, Error **errp)
{
    uint64_t perm, shared;

    blk_get_perm(blk, &perm, &shared);
    if (blk_get_attached_dev(blk) || blk_name(blk)[0] || !blk_bs(blk) ||
        !(perm & ~BLK_PERM_CONSISTENT_READ)) {
        return true;
    }
    error_setg(errp, "An export or a block job can write to node '%s'; end it "
               "first", bdrv_get_node_name(blk_bs(blk)));
    return false;
}

bool fork_disks_are_able(const RamResetForkDiskList *disks, Error **errp)
{
    BdrvNextIterator it;

    GRAPH_RDLOCK_GUARD_MAINLOOP();
    for (BlockBackend *blk = NULL; (blk = blk_all_next(blk)); ) {
        if (!fork_check_user(blk, errp)) {
            return false;
        }
    }
    for (BlockDriverState *bs = bdrv_first(&it); bs; bs = bdrv_next(&it)) {
        if (bdrv_has_blk(bs) && bdrv_is_inserted(bs) &&
            !bdrv_is_read_only(bs) && !fork_check_disk(disks, bs, errp)) {
            bdrv_next_cleanup(&it);
            return false;
        }
    }
    for (; disks; disks = disks->next) {
        if (!bdrv_find_node(disks->value->node)) {
            error_setg(errp, "There is no block node '%s'", disks->value->node);
            return false;
        }
    }
    return true;
}

/* The transaction does not tell */
static bool fork_disks_are_frozen(const RamResetForkDiskList *disks,
                                  Error **errp)
{
    for (; disks; disks = disks->next) {
        BlockDriverState *bs = bdrv_find_node(disks->value->node);

        if (bs && !bdrv_is_read_only(bs)) {
            error_setg(errp, "Disk '%s' has its overlay, but cannot be made "
                       "read-only", disks->value->node);
            return false;
        }
    }
    return true;
}

bool fork_disks_freeze(const RamResetForkDiskList *disks, Error **errp)
{
    const RamResetForkDiskList *all = disks;
    g_autoptr(TransactionActionList) actions = NULL;
    ERRP_GUARD();

    for (; disks; disks = disks->next) {
        TransactionAction *a = g_new0(TransactionAction, 1);
        BlockdevSnapshot *data = g_new0(BlockdevSnapshot, 1);

        data->node = g_strdup(disks->value->node);
        data->overlay = g_strdup(disks->value->overlay);
        a->type = TRANSACTION_ACTION_KIND_BLOCKDEV_SNAPSHOT;
        a->u.blockdev_snapshot.data = data;
        QAPI_LIST_PREPEND(actions, a);
    }
    if (actions) {
        qmp_transaction(actions, NULL, errp);
    }
    return !*errp && fork_disks_are_frozen(all, errp);
}
