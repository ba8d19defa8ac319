/*
 * The snapshots that a save overwrites, or a deletion deletes
 *
 * A new snapshot overwrites an old one of the same name only when it is
 * complete.  A failed save loses nothing.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qapi/error.h"
#include "qemu/error-report.h"
#include "block/block.h"
#include "system/ram-reset-template.h"
#include "migration/ram-reset.h"
#include "migration/ram-reset/disk-snapshots.h"
#include "migration/ram-reset/overwrite.h"
#include "migration/ram-reset/qcow2.h"
#include "migration/ram-reset/snapshot.h"

/* Protected by the BQL */
static struct {
    GArray *old;            /* DiskSnapshot before the save, with its name */
    bool overwrites;        /* the end of the save deletes them */
} save;

void ram_reset_overwrite_begin(const GPtrArray *disks, const char *name)
{
    save.old = ram_reset_disk_snapshots(disks, name);
}

void ram_reset_overwrite_end(void)
{
    g_clear_pointer(&save.old, g_array_unref);
    save.overwrites = false;
}

static GArray *list_snapshots(const char *name, bool has_devices,
                              strList *devices)
{
    g_autoptr(GPtrArray) disks = ram_reset_disks(has_devices, devices);

    return ram_reset_disk_snapshots(disks, name);
}

/* Some formats (rbd) have no ids, so names must be unique in a disk */
static bool is_known_by_name(const DiskSnapshot *s)
{
    return !strcmp(s->sn.id_str, s->sn.name) &&
           strcmp(bdrv_get_format_name(s->bs), "qcow2");
}

/* A snapshot may have one template with shared RAM, and one without */
static void retire_templates_of(const DiskSnapshot *s)
{
    RamResetSnapshot *snapshot = ram_reset_snapshot_get(s->bs, &s->sn);

    for (int shared = 0; shared < 2; shared++) {
        g_autofree char *identity = ram_reset_snapshot_identity(snapshot, s->bs,
                                                                shared);

        if (identity) {
            ram_reset_template_retire(identity);
        }
    }
}

/*
 * Delete the templates of snapshots that are about to be deleted.  If such a
 * deletion fails, the next load makes a new template.
 */
static void retire_templates(const GArray *snapshots)
{
    for (unsigned i = 0; ram_reset_templates_wanted() && i < snapshots->len;
         i++) {
        DiskSnapshot *s = &g_array_index(snapshots, DiskSnapshot, i);

        if (s->sn.vm_state_size) {
            retire_templates_of(s);
        }
    }
}

/* Free what is in memory of the @snapshots that the images do not have now */
static void forget_deleted(const GArray *snapshots)
{
    for (unsigned i = 0; i < snapshots->len; i++) {
        DiskSnapshot *s = &g_array_index(snapshots, DiskSnapshot, i);

        if (ram_reset_snapshot_is_gone(s->bs, &s->sn)) {
            ram_reset_snapshot_forget(s->bs, &s->sn);
        }
    }
}

bool ram_reset_save_overwrites(const char *name, bool has_devices,
                               strList *devices, Error **errp)
{
    for (unsigned i = 0; i < save.old->len; i++) {
        if (is_known_by_name(&g_array_index(save.old, DiskSnapshot, i))) {
            bool ok = ram_reset_delete(name, has_devices, devices, errp) >= 0;

            g_array_set_size(save.old, 0);
            return ok;
        }
    }
    save.overwrites = true;
    return true;
}

static bool overwrite_is_older(const DiskSnapshot *s)
{
    for (unsigned i = 0; save.old && i < save.old->len; i++) {
        DiskSnapshot *old = &g_array_index(save.old, DiskSnapshot, i);

        if (old->bs == s->bs && !strcmp(old->sn.id_str, s->sn.id_str)) {
            return true;
        }
    }
    return false;
}

void ram_reset_save_undo(const char *name, bool has_devices, strList *devices)
{
    g_autoptr(GArray) all = list_snapshots(name, has_devices, devices);

    for (unsigned i = 0; i < all->len; i++) {
        DiskSnapshot *s = &g_array_index(all, DiskSnapshot, i);

        if (!overwrite_is_older(s)) {
            bdrv_snapshot_delete(s->bs, s->sn.id_str, s->sn.name, NULL);
            ram_reset_snapshot_forget(s->bs, &s->sn);
        }
    }
}

/* Any change makes the format write its list with all earlier changes */
static bool write_list(BlockDriverState *bs)
{
    QEMUSnapshotInfo sn = { .name = "ram-reset-scratch" };

    return bdrv_snapshot_create(bs, &sn) >= 0 &&
           bdrv_snapshot_delete(bs, sn.id_str, sn.name, NULL) >= 0;
}

/*
 * A failed deletion may still delete the snapshot, if qcow2 has written the list
 * and then fails to free clusters.  But it removes the snapshot from the list in
 * memory before it writes the list: if that write fails, the image still has the
 * old snapshot, in front of the new one.
 */
static bool delete_snapshot(const DiskSnapshot *s, Error **errp)
{
    ERRP_GUARD();
    static bool warned;
    int64_t list = ram_reset_qcow2_list_position(s->bs);
    QEMUSnapshotInfo sn;

    if (bdrv_snapshot_delete(s->bs, s->sn.id_str, s->sn.name, errp) < 0) {
        if (bdrv_snapshot_find_by_id_and_name(s->bs, s->sn.id_str, s->sn.name,
                                              &sn, NULL) ||
            (ram_reset_qcow2_list_position(s->bs) == list &&
             !write_list(s->bs))) {
            error_prepend(errp, "Could not delete the old snapshot '%s' on "
                          "'%s': ", s->sn.name,
                          bdrv_get_device_or_node_name(s->bs));
            return false;
        }
        warn_report_err_once_cond(&warned, *errp);
        *errp = NULL;
    }
    return true;
}

/*
 * If the deletion of an old snapshot fails, delete the new ones: QEMU would
 * revert a disk with two snapshots of the name to the old one.  Some disks may
 * have no old snapshot by then; QEMU refuses to load such a snapshot.
 */
bool ram_reset_delete_overwritten(const char *name, bool has_devices,
                                  strList *devices, Error **errp)
{
    bool ok = true;

    if (!save.overwrites) {
        return true;
    }
    retire_templates(save.old);
    for (unsigned i = 0; i < save.old->len && ok; i++) {
        ok = delete_snapshot(&g_array_index(save.old, DiskSnapshot, i), errp);
    }
    forget_deleted(save.old);
    if (!ok) {
        ram_reset_save_undo(name, has_devices, devices);
    }
    return ok;
}

/*
 * After an interrupted save, a disk may have two snapshots of the name.  QEMU
 * deletes only one in each disk.
 */
static bool delete_all_but_one(const GArray *all, Error **errp)
{
    for (unsigned i = 1; i < all->len; i++) {
        const DiskSnapshot *s = &g_array_index(all, DiskSnapshot, i - 1);

        if (s->bs == g_array_index(all, DiskSnapshot, i).bs &&
            !delete_snapshot(s, errp)) {
            return false;
        }
    }
    return true;
}

int ram_reset_delete(const char *name, bool has_devices, strList *devices,
                     Error **errp)
{
    g_autoptr(GArray) all = list_snapshots(name, has_devices, devices);
    int ret = -EIO;

    retire_templates(all);
    if (delete_all_but_one(all, errp)) {
        ret = bdrv_all_delete_snapshot(name, has_devices, devices, errp);
    }
    forget_deleted(all);
    return ret;
}
