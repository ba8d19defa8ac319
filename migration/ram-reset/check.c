/*
 * Whether a snapshot load may begin
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qapi/error.h"
#include "block/block_int.h"
#include "block/dirty-bitmap.h"
#include "system/ram-reset-compat.h"
#include "system/ram-reset-load.h"
#include "system/ram-reset-rewind.h"
#include "system/runstate.h"
#include "migration/colo.h"
#include "migration/misc.h"
#include "migration/ram-reset.h"
#include "migration/vmstate.h"
#include "migration/migration.h"
#include "migration/options.h"
#include "migration/postcopy-ram.h"
#include "migration/savevm.h"
#include "migration/ram-reset/check.h"
#include "migration/ram-reset/layout.h"
#include "migration/ram-reset/vmstate/mapped-ram.h"

bool ram_reset_migration_is_over(void)
{
    MigrationState *s = migrate_get_current();

    return !migration_is_running() && !s->migration_thread_running &&
           !s->to_dst_file && !migration_in_incoming_postcopy();
}

/* Refuse a load in a migration, or with a capability that it cannot serve */
static bool check_migration_state(Error **errp)
{
    MigrationStatus incoming = migration_incoming_get_current()->state;
    const char *reason = NULL;

    if (runstate_check(RUN_STATE_INMIGRATE) ||
        (incoming != MIGRATION_STATUS_NONE &&
         incoming != MIGRATION_STATUS_COMPLETED)) {
        reason = "an incoming migration has not completed";
    } else if (migrate_multifd()) {
        reason = "migration capability 'multifd' is on, set it to off";
    } else if (migrate_postcopy_ram()) {
        reason = "migration capability 'postcopy-ram' is on, set it to off";
    } else if (ram_reset_mapped_ram_blocker()) {
        reason = ram_reset_mapped_ram_blocker();
    } else if (migrate_colo() || migration_incoming_colo_enabled()) {
        reason = "COLO is set up (migration capability 'x-colo')";
    } else {
        reason = ram_reset_load_refusal();
    }
    if (reason) {
        error_setg(errp, "RAM reset cannot serve a snapshot load now, "
                   "nothing has been changed: %s", reason);
    }
    return !reason;
}

/* bdrv_snapshot_goto() refuses bitmaps, but would revert a block job's disk */
static bool GRAPH_RDLOCK check_node(BlockDriverState *bs, const char *disk,
                                    Error **errp)
{
    ERRP_GUARD();
    BdrvDirtyBitmap *bitmap = bdrv_dirty_bitmap_first(bs);

    /* A block job blocks this operation; an overlay, allowed here, does not */
    if (bdrv_op_is_blocked(bs, BLOCK_OP_TYPE_BACKUP_TARGET, errp)) {
        error_prepend(errp, "Disk '%s' cannot be reverted, nothing has been "
                      "changed: ", disk);
        return false;
    }
    if (bitmap) {
        error_setg(errp, "Disk '%s' cannot be reverted, nothing has been "
                   "changed: it has dirty bitmap '%s'", disk,
                   bdrv_dirty_bitmap_name(bitmap) ?: "of a block job");
        error_append_hint(errp, "Remove it with block-dirty-bitmap-remove, or "
                          "wait for the end of the job.\n");
    }
    return !bitmap;
}

/* A backup puts its bitmap and its blocker in a filter on top of the disk */
static bool GRAPH_RDLOCK check_filters(BlockDriverState *bs, const char *disk,
                                       Error **errp)
{
    BdrvChild *child;

    QLIST_FOREACH(child, &bs->parents, next_parent) {
        if (child->klass->parent_is_bds && child->role & BDRV_CHILD_FILTERED &&
            (!check_node(child->opaque, disk, errp) ||
             !check_filters(child->opaque, disk, errp))) {
            return false;
        }
    }
    return true;
}

bool ram_reset_check_disks(const GPtrArray *disks, Error **errp)
{
    GRAPH_RDLOCK_GUARD_MAINLOOP();

    for (unsigned i = 0; i < disks->len; i++) {
        BlockDriverState *bs = g_ptr_array_index(disks, i);
        const char *disk = bdrv_get_device_or_node_name(bs);
        bool last = false;

        if (!check_filters(bs, disk, errp)) {
            return false;
        }
        /* A raw image on top of qcow2 has the snapshots of the qcow2 image */
        for (; bs && !last; bs = bdrv_primary_bs(bs)) {
            if (!check_node(bs, disk, errp)) {
                return false;
            }
            last = bs->drv && bs->drv->bdrv_snapshot_goto;
        }
    }
    return true;
}

static DeviceState *as_device(Object *obj)
{
    return (DeviceState *)object_dynamic_cast(obj, TYPE_DEVICE);
}

/* QEMU has asked the guest to release the object, or a parent of it */
static bool is_being_unplugged(Object *obj)
{
    for (; obj; obj = obj->parent) {
        if (as_device(obj) && as_device(obj)->pending_deleted_event) {
            return true;
        }
    }
    return false;
}

/* @opaque: bool[2], indexed by is_being_unplugged() */
static int note_unmigratable(Object *obj, void *opaque)
{
    DeviceState *dev = as_device(obj);
    const VMStateDescription *vmsd = dev && dev->realized ? qdev_get_vmsd(dev)
                                                          : NULL;

    if (vmsd && vmsd->unmigratable) {
        ((bool *)opaque)[is_being_unplugged(obj)] = true;
    }
    return 0;
}

/*
 * QEMU makes the same check after the disks have been reverted.  By then, the
 * system reset has removed all devices that are being unplugged, so such a
 * device does not prevent the load.
 */
static bool check_unmigratable(Error **errp)
{
    ERRP_GUARD();
    bool found[] = { false, false };

    if (!qemu_savevm_state_blocked(errp)) {
        return true;
    }
    object_child_foreach_recursive(object_get_root(), note_unmigratable,
                                   found);
    if (found[true] && !found[false]) {
        error_free(*errp);
        *errp = NULL;
        return true;
    }
    error_prepend(errp, "Snapshots cannot be loaded, nothing has been "
                  "changed: ");
    error_append_hint(errp, "Unplug the device, then load the snapshot.\n");
    return false;
}

/* A snapshot in memory must fit exactly */
static bool check_memory(const RamResetSnapshot *s, Error **errp)
{
    ERRP_GUARD();

    if (!s->vmstate) {
        return true;
    }
    if (ram_reset_verify_wanted() && !s->digest) {
        error_setg(errp, "Snapshot '%s' cannot be verified: it is in memory, "
                   "and was saved with verify=off; nothing has been changed",
                   s->info.name);
        return false;
    }
    if (ram_reset_enabled() && ram_reset_point_fits(s->point)) {
        return true;
    }
    error_setg(errp, "Snapshot '%s' is in memory, and RAM has other blocks or "
               "no ram-reset object", s->info.name);
    error_append_hint(errp, "Unplug what was plugged since the save, or add an "
                      "object.  A block that was unplugged is another one when "
                      "it is plugged again: delete the snapshot then.\n");
    return false;
}

bool ram_reset_check_load(RamResetSnapshot *s, BlockDriverState *bs,
                          Error **errp)
{
    if (!check_unmigratable(errp) || !check_memory(s, errp)) {
        return false;
    }
    return !ram_reset_enabled() ||
           (check_migration_state(errp) && ram_reset_check_layout(s, bs, errp));
}

void ram_reset_clear_migration_error(void)
{
    MigrationState *s = migrate_get_current();

    QEMU_LOCK_GUARD(&s->error_mutex);
    g_clear_pointer(&s->error, error_free);
}
