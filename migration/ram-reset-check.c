/*
 * Whether a snapshot load may begin
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qapi/error.h"
#include "block/block.h"
#include "system/ram-reset-compat.h"
#include "system/ram-reset-load.h"
#include "system/runstate.h"
#include "migration/colo.h"
#include "migration/misc.h"
#include "migration/ram-reset.h"
#include "migration/vmstate.h"
#include "migration.h"
#include "options.h"
#include "postcopy-ram.h"
#include "savevm.h"
#include "migration/ram-reset-check.h"
#include "migration/ram-reset-layout.h"
#include "migration/ram-reset-mapped.h"

bool ram_reset_migration_is_over(void)
{
    MigrationState *s = migrate_get_current();

    return !migration_is_running() && !s->migration_thread_running &&
           !s->to_dst_file && !migration_in_incoming_postcopy();
}

/* A load cannot be mixed with these */
static bool check_others(Error **errp)
{
    MigrationStatus incoming = migration_incoming_get_current()->state;
    const char *what = NULL;

    if (runstate_check(RUN_STATE_INMIGRATE) ||
        (incoming != MIGRATION_STATUS_NONE &&
         incoming != MIGRATION_STATUS_COMPLETED)) {
        what = "an incoming migration has not completed";
    } else if (migration_is_running()) {
        what = "a migration is running, wait for its end or cancel it";
    } else if (migrate_multifd()) {
        what = "migration capability 'multifd' is on, set it to off";
    } else if (migrate_postcopy_ram()) {
        what = "migration capability 'postcopy-ram' is on, set it to off";
    } else if (ram_reset_mapped_ram_blocker()) {
        what = ram_reset_mapped_ram_blocker();
    } else if (migrate_colo() || migration_incoming_colo_enabled()) {
        what = "COLO is set up (migration capability 'x-colo')";
    } else {
        what = ram_reset_load_refusal();
    }
    if (what) {
        error_setg(errp, "RAM reset cannot serve a snapshot load now, "
                   "nothing has been changed: %s", what);
    }
    return !what;
}

/* QEMU reverts disks to a snapshot that has the tag as its id first */
static bool check_tag(BlockDriverState *bs, const char *tag, Error **errp)
{
    g_autofree QEMUSnapshotInfo *list = NULL;
    int n = bdrv_snapshot_list(bs, &list);

    for (int i = 0; i < n; i++) {
        if (!strcmp(list[i].id_str, tag) && strcmp(list[i].name, tag)) {
            error_setg(errp, "'%s' is the name of one snapshot and the id of "
                       "another, '%s'", tag, list[i].name);
            error_append_hint(errp, "Save it with a name that is no number.\n");
            return false;
        }
    }
    return true;
}

static DeviceState *as_device(Object *obj)
{
    return (DeviceState *)object_dynamic_cast(obj, TYPE_DEVICE);
}

/* The guest has been asked to release it, or what it is a part of */
static bool is_being_unplugged(Object *obj)
{
    for (; obj; obj = obj->parent) {
        if (as_device(obj) && as_device(obj)->pending_deleted_event) {
            return true;
        }
    }
    return false;
}

/* @opaque: two of bool, for those that are not being unplugged and are */
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
 * QEMU asks the same when the disks have been reverted.  By then, the system
 * reset has removed the devices that are being unplugged, so that one of these
 * is no reason to refuse the load.
 */
static bool check_devices(Error **errp)
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

bool ram_reset_check_load(BlockDriverState *bs, const QEMUSnapshotInfo *sn,
                          Error **errp)
{
    if (!check_devices(errp)) {
        return false;
    }
    return !ram_reset_enabled() ||
           (check_others(errp) && check_tag(bs, sn->name, errp) &&
            ram_reset_check_layout(bs, sn, errp));
}

void ram_reset_clear_migration_error(void)
{
    MigrationState *s = migrate_get_current();

    QEMU_LOCK_GUARD(&s->error_mutex);
    g_clear_pointer(&s->error, error_free);
}
