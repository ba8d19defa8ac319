/*
 * RAM reset in the course of saving a snapshot
 *
 * A snapshot that replaces one of the same name takes its place only when it
 * is complete: until then, a save that fails has lost nothing.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qapi/error.h"
#include "qemu/error-report.h"
#include "qemu/main-loop.h"
#include "block/block_int.h"
#include "system/arch_init.h"
#include "system/block-backend.h"
#include "system/ram-reset-load.h"
#include "system/ram-reset-rewind.h"
#include "system/ram-reset-template.h"
#include "system/runstate.h"
#include "migration/misc.h"
#include "migration/ram-reset.h"
#include "migration.h"
#include "options.h"
#include "qemu-file.h"
#include "ram.h"
#include "ram-reset-identity.h"
#include "ram-reset-rewind.h"

/* RAM_SAVE_FLAG_EOS */
#define END_OF_SECTION 8

/* A snapshot in one of the disks, none of which goes away during a save */
typedef struct DiskSnapshot {
    BlockDriverState *bs;
    QEMUSnapshotInfo sn;
} DiskSnapshot;

bool ram_reset_saving;

/* Protected by the BQL */
static GArray *replaced;        /* of DiskSnapshot; NULL if there are none */
/* Where RAM's last section has ended in the VM state saved last */
static int64_t saved_ram_end;

bool ram_reset_save_prepare(Error **errp)
{
    g_clear_pointer(&replaced, g_array_unref);
    return ram_reset_vm_is_whole(errp);
}

static void add_snapshots_of(BlockDriverState *bs, const char *name,
                             GArray *snapshots)
{
    g_autofree QEMUSnapshotInfo *list = NULL;
    int n = bdrv_snapshot_list(bs, &list);

    for (int i = 0; i < n; i++) {
        if (!strcmp(list[i].name, name)) {
            DiskSnapshot found = { .bs = bs, .sn = list[i] };

            g_array_append_val(snapshots, found);
        }
    }
}

/* One that savevm takes if no nodes are named, see block/snapshot.c */
static bool is_saved_by_default(BlockDriverState *bs)
{
    GRAPH_RDLOCK_GUARD_MAINLOOP();

    return bdrv_is_inserted(bs) && !bdrv_is_read_only(bs) &&
           (bdrv_has_blk(bs) || QLIST_EMPTY(&bs->parents));
}

/* All that have that name, of DiskSnapshot */
static GArray *find_snapshots(const char *name, bool has_devices,
                              strList *devices)
{
    GArray *snapshots = g_array_new(false, false, sizeof(DiskSnapshot));
    BlockDriverState *bs;
    BdrvNextIterator it;

    for (; has_devices && devices; devices = devices->next) {
        bs = bdrv_find_node(devices->value);
        if (bs) {
            add_snapshots_of(bs, name, snapshots);
        }
    }
    if (!has_devices) {
        for (bs = bdrv_first(&it); bs; bs = bdrv_next(&it)) {
            if (is_saved_by_default(bs)) {
                add_snapshots_of(bs, name, snapshots);
            }
        }
    }
    return snapshots;
}

/* Some formats (rbd) go by the name, and cannot have two */
static bool is_known_by_name(const DiskSnapshot *s)
{
    return !strcmp(s->sn.id_str, s->sn.name) &&
           strcmp(bdrv_get_format_name(s->bs), "qcow2");
}

/* The one with shared RAM, and the one without */
static void retire_templates_of(const DiskSnapshot *s)
{
    for (int shared = 0; shared < 2; shared++) {
        g_autofree char *identity = ram_reset_snapshot_identity(s->bs, &s->sn,
                                                                shared);

        if (identity) {
            ram_reset_template_retire(identity);
        }
    }
}

/*
 * These snapshots are going to be deleted, and their templates go with them.
 * If one is not deleted after all, the next load makes new ones.
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

void ram_reset_delete_prepare(const char *name, bool has_devices,
                              strList *devices)
{
    g_autoptr(GArray) snapshots = NULL;

    if (ram_reset_templates_wanted()) {
        snapshots = find_snapshots(name, has_devices, devices);
        retire_templates(snapshots);
    }
}

bool ram_reset_save_replaces(const char *name, bool has_devices,
                             strList *devices, Error **errp)
{
    replaced = find_snapshots(name, has_devices, devices);
    for (unsigned i = 0; i < replaced->len; i++) {
        if (is_known_by_name(&g_array_index(replaced, DiskSnapshot, i))) {
            retire_templates(replaced);
            g_clear_pointer(&replaced, g_array_unref);
            return bdrv_all_delete_snapshot(name, has_devices, devices,
                                            errp) >= 0;
        }
    }
    return true;
}

static bool is_replaced(const DiskSnapshot *s)
{
    for (unsigned i = 0; replaced && i < replaced->len; i++) {
        DiskSnapshot *old = &g_array_index(replaced, DiskSnapshot, i);

        if (old->bs == s->bs && !strcmp(old->sn.id_str, s->sn.id_str)) {
            return true;
        }
    }
    return false;
}

void ram_reset_save_undo(const char *name, bool has_devices, strList *devices)
{
    g_autoptr(GArray) all = find_snapshots(name, has_devices, devices);

    for (unsigned i = 0; i < all->len; i++) {
        DiskSnapshot *s = &g_array_index(all, DiskSnapshot, i);

        if (!is_replaced(s)) {
            bdrv_snapshot_delete(s->bs, s->sn.id_str, s->sn.name, NULL);
        }
    }
}

/* With all that has been changed in it; any change writes it */
static bool write_list(BlockDriverState *bs)
{
    QEMUSnapshotInfo sn = { .name = "ram-reset-scratch" };

    return bdrv_snapshot_create(bs, &sn) >= 0 &&
           bdrv_snapshot_delete(bs, sn.id_str, sn.name, NULL) >= 0;
}

/*
 * It may be gone although that has failed.  But qcow2 takes it off the list in
 * memory before that is written: the image would still have the old one, and
 * before the new one.
 */
static bool delete_one(const DiskSnapshot *s, Error **errp)
{
    ERRP_GUARD();
    static bool warned;
    QEMUSnapshotInfo sn;

    if (bdrv_snapshot_delete(s->bs, s->sn.id_str, s->sn.name, errp) < 0) {
        if (bdrv_snapshot_find_by_id_and_name(s->bs, s->sn.id_str, s->sn.name,
                                              &sn, NULL) ||
            !write_list(s->bs)) {
            error_prepend(errp, "Could not delete the snapshot '%s' that is to "
                          "be replaced on '%s': ", s->sn.name,
                          bdrv_get_device_or_node_name(s->bs));
            return false;
        }
        warn_report_err_once_cond(&warned, *errp);
        *errp = NULL;
    }
    return true;
}

/*
 * If some cannot be deleted, the new ones go: a disk with two of the name would
 * be taken back to the old one.  As some of the old ones may be gone by then,
 * what remains is the old snapshot, or one that some disks lack, which is
 * refused.
 */
static bool delete_replaced(const char *name, bool has_devices,
                            strList *devices, Error **errp)
{
    if (!replaced) {
        return true;
    }
    retire_templates(replaced);
    for (unsigned i = 0; i < replaced->len; i++) {
        if (!delete_one(&g_array_index(replaced, DiskSnapshot, i), errp)) {
            ram_reset_save_undo(name, has_devices, devices);
            return false;
        }
    }
    g_clear_pointer(&replaced, g_array_unref);
    return true;
}

static QemuThread saver;

/*
 * Of those who save RAM, savevm alone does so in the main thread.  It has
 * stopped vCPUs before, so nobody writes to RAM until all of it is saved.
 */
void ram_reset_save_sync(void)
{
    bool savevm = qemu_get_thread_id() == getpid();

    qatomic_set(&ram_reset_dirty_bits_taken, true);
    if (savevm) {
        assert(bql_locked() && !runstate_is_running());
        qemu_thread_get_self(&saver);
        ram_reset_unpopulated_begin();
    }
    qatomic_set(&ram_reset_saving, savevm);
}

/* A savevm that has failed does not tell of its end, before a migration */
bool ram_reset_do_save_zero(const void *page)
{
    return qemu_thread_is_self(&saver) && ram_reset_is_unpopulated(page);
}

void ram_reset_save_ram_done(QEMUFile *f)
{
    qatomic_set(&ram_reset_saving, false);
    /* Nothing but these, and those targets', would lie between RAM's */
    saved_ram_end = migrate_dirty_bitmaps() || migrate_mapped_ram() ||
                    qemu_arch_available(QEMU_ARCH_PPC | QEMU_ARCH_S390X)
                    ? 0 : qemu_file_transferred(f) + END_OF_SECTION;
}

static void keep_saved(BlockDriverState *bs, const char *name)
{
    g_autofree char *identity = NULL;
    QEMUSnapshotInfo sn;

    if (!ram_reset_rewind_wanted() && !ram_reset_templates_wanted()) {
        return;
    }
    if (bdrv_snapshot_find(bs, &sn, name) < 0) {
        return;
    }
    identity = ram_reset_template_identity(bs, &sn);
    if (identity && saved_ram_end > 0) {
        ram_reset_template_make(identity, saved_ram_end, false,
                                migrate_ram_is_ignored);
    }
    if (ram_reset_rewind_wanted()) {
        ram_reset_baseline_of_save(bs, &sn, saved_ram_end);
    }
}

int ram_reset_saved(BlockDriverState *bs, const char *name, bool has_devices,
                    strList *devices, Error **errp)
{
    bool ok;

    ram_reset_unpopulated_end();
    /* the template that is open may be one that goes */
    ok = delete_replaced(name, has_devices, devices, errp);
    ram_reset_template_close();
    if (!ok) {
        return -EIO;
    }
    keep_saved(bs, name);
    return 0;
}
