/*
 * Looking a snapshot up by its name
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qapi/error.h"
#include "block/block.h"
#include "migration/misc.h"
#include "system/ram-reset-at-snapshot.h"
#include "migration/ram-reset.h"
#include "migration/ram-reset/disk-snapshots.h"
#include "migration/ram-reset/inherited.h"
#include "migration/ram-reset/snapshot.h"

int ram_reset_find_snapshot(BlockDriverState *bs, QEMUSnapshotInfo *sn,
                            const char *name)
{
    int ret = bdrv_snapshot_find(bs, sn, name);

    return ret == -ENOENT && ram_reset_inherited(bs, name, sn) ? 0 : ret;
}

/* A save that was interrupted may have left two of the name */
bool ram_reset_has_vmstate(BlockDriverState *bs, const QEMUSnapshotInfo *sn)
{
    g_autofree QEMUSnapshotInfo *list = NULL;
    int n = bdrv_snapshot_list(bs, &list);
    QEMUSnapshotInfo inherited;

    for (int i = 0; i < n; i++) {
        if (!strcmp(list[i].name, sn->name) &&
            ram_reset_snapshot_has_vmstate(bs, &list[i])) {
            return true;
        }
    }
    return ram_reset_inherited(bs, sn->name, &inherited) &&
           inherited.vm_state_size;
}

/* Returns 1 if it has, 0 if not, -1 with @errp set if not and why is known */
static int disk_has(BlockDriverState *bs, const char *name, Error **errp)
{
    ERRP_GUARD();
    QEMUSnapshotInfo sn;

    if (ram_reset_find_snapshot(bs, &sn, name) >= 0) {
        return 1;
    }
    if (!ram_reset_backing_has(bs, name)) {
        return 0;
    }
    error_setg(errp, "Snapshot '%s' does not exist in '%s', but in its backing "
               "file, which does not show it", name,
               bdrv_get_device_or_node_name(bs));
    error_append_hint(errp, "Make a new overlay over the backing file with the "
                      "option " RAM_RESET_INTERNAL_SNAPSHOT ".\n");
    return -1;
}

static int lookup_in_all(const char *name, bool has_devices, strList *devices,
                         Error **errp)
{
    int ret = bdrv_all_has_snapshot(name, has_devices, devices, errp);
    g_autoptr(GPtrArray) disks = NULL;

    if (ret) {
        return ret;
    }
    disks = ram_reset_disks(has_devices, devices);
    ret = 1;
    for (unsigned i = 0; i < disks->len && ret > 0; i++) {
        ret = disk_has(g_ptr_array_index(disks, i), name, errp);
    }
    return ret;
}

int ram_reset_all_have(const char *name, bool has_devices, strList *devices,
                       Error **errp)
{
    if (migration_is_running()) {
        /* QEMU finds that, too, but when disks have been reverted */
        error_setg(errp, "A snapshot cannot be loaded now, nothing has been "
                   "changed: a migration is running, wait for its end or "
                   "cancel it");
        return -1;
    }
    return lookup_in_all(name, has_devices, devices, errp);
}

bool ram_reset_exists(const char *name)
{
    return lookup_in_all(name, false, NULL, NULL) == 1;
}
