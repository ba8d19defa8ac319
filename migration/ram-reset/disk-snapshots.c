/*
 * The snapshots with one name in all disks that take part
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qapi/error.h"
#include "block/block_int.h"
#include "system/block-backend.h"
#include "system/ram-reset-disks.h"
#include "migration/ram-reset/disk-snapshots.h"
#include "migration/ram-reset/inherited.h"
#include "migration/ram-reset/qcow2.h"
#include "migration/ram-reset/snapshot.h"

static void unref_disk(gpointer bs)
{
    bdrv_unref(bs);
}

static void add_disk(GPtrArray *disks, BlockDriverState *bs)
{
    bdrv_ref(bs);
    g_ptr_array_add(disks, bs);
}

/* block/snapshot.c includes the same disks if the user names no node */
static bool is_included_by_default(BlockDriverState *bs)
{
    GRAPH_RDLOCK_GUARD_MAINLOOP();

    return bdrv_is_inserted(bs) && !ram_reset_excludes_disk(bs) &&
           (bdrv_has_blk(bs) || QLIST_EMPTY(&bs->parents));
}

GPtrArray *ram_reset_disks(bool has_devices, strList *devices)
{
    GPtrArray *disks = g_ptr_array_new_with_free_func(unref_disk);
    BlockDriverState *bs;
    BdrvNextIterator it;

    for (; has_devices && devices; devices = devices->next) {
        bs = bdrv_find_node(devices->value);
        if (bs) {
            add_disk(disks, bs);
        }
    }
    if (!has_devices) {
        for (bs = bdrv_first(&it); bs; bs = bdrv_next(&it)) {
            if (is_included_by_default(bs)) {
                add_disk(disks, bs);
            }
        }
    }
    return disks;
}

static void unref_snapshot(gpointer opaque)
{
    bdrv_unref(((DiskSnapshot *)opaque)->bs);
}

static GArray *new_snapshots(void)
{
    GArray *snapshots = g_array_new(false, false, sizeof(DiskSnapshot));

    g_array_set_clear_func(snapshots, unref_snapshot);
    return snapshots;
}

static void add_snapshot(GArray *snapshots, BlockDriverState *bs,
                         BlockDriverState *node, const QEMUSnapshotInfo *sn)
{
    DiskSnapshot s = { .bs = bs, .node = node, .sn = *sn };

    bdrv_ref(bs);
    g_array_append_val(snapshots, s);
}

GArray *ram_reset_disk_snapshots(const GPtrArray *disks, const char *name)
{
    GArray *snapshots = new_snapshots();

    for (unsigned i = 0; i < disks->len; i++) {
        BlockDriverState *bs = g_ptr_array_index(disks, i);
        g_autofree QEMUSnapshotInfo *list = NULL;
        int n = bdrv_snapshot_list(bs, &list);

        for (int k = 0; k < n; k++) {
            if (!name || !strcmp(list[k].name, name)) {
                add_snapshot(snapshots, bs, bs, &list[k]);
            }
        }
    }
    return snapshots;
}

static void add_inherited(GArray *snapshots, const GPtrArray *disks,
                          const char *name)
{
    for (unsigned i = 0; i < disks->len; i++) {
        BlockDriverState *bs = g_ptr_array_index(disks, i);
        QEMUSnapshotInfo sn;
        BlockDriverState *node = ram_reset_inherited(bs, name, &sn);

        if (node) {
            add_snapshot(snapshots, bs, node, &sn);
        }
    }
}

/* savevm gives the snapshots of all disks the same times */
static bool have_same_times(const QEMUSnapshotInfo *a,
                            const QEMUSnapshotInfo *b)
{
    return a->date_sec == b->date_sec && a->date_nsec == b->date_nsec &&
           a->vm_clock_nsec == b->vm_clock_nsec && a->icount == b->icount;
}

static bool snapshot_is_older(const QEMUSnapshotInfo *a,
                              const QEMUSnapshotInfo *b)
{
    return a->date_sec != b->date_sec ? a->date_sec < b->date_sec
                                      : a->date_nsec < b->date_nsec;
}

/*
 * The user may have added the snapshot with qemu-img, which saves no VM.  Some
 * formats (rbd) store no times.  An older snapshot is refused: it may be left
 * over from a save of a VM before its clock ran.
 */
static bool was_added(const QEMUSnapshotInfo *sn, const QEMUSnapshotInfo *vm)
{
    return !sn->vm_clock_nsec && !sn->vm_state_size &&
           (!sn->date_sec || !snapshot_is_older(sn, vm));
}

/* Returns the snapshot in @bs that was made together with @sn, or NULL */
static const DiskSnapshot *find_in_disk(const GArray *all,
                                        const BlockDriverState *bs,
                                        const QEMUSnapshotInfo *sn)
{
    const DiskSnapshot *only = NULL;
    unsigned n = 0;

    for (unsigned i = 0; i < all->len; i++) {
        const DiskSnapshot *s = &g_array_index(all, DiskSnapshot, i);

        if (s->bs == bs) {
            if (have_same_times(&s->sn, sn)) {
                return s;
            }
            only = s;
            n++;
        }
    }
    return n == 1 && was_added(&only->sn, sn) ? only : NULL;
}

/* Returns NULL and sets *@without if a disk has no snapshot made with @vm */
static GArray *find_in_all_disks(const GPtrArray *disks, const GArray *all,
                                 const DiskSnapshot *vm,
                                 BlockDriverState **without)
{
    g_autoptr(GArray) snapshots = new_snapshots();

    for (unsigned i = 0; i < disks->len; i++) {
        BlockDriverState *bs = g_ptr_array_index(disks, i);
        const DiskSnapshot *s = bs == vm->bs ? vm
                                             : find_in_disk(all, bs, &vm->sn);

        if (!s) {
            *without = bs;
            return NULL;
        }
        add_snapshot(snapshots, bs, s->node, &s->sn);
    }
    return g_steal_pointer(&snapshots);
}

static bool check_inherited(const GArray *snapshots, Error **errp)
{
    for (unsigned i = 0; i < snapshots->len; i++) {
        const DiskSnapshot *s = &g_array_index(snapshots, DiskSnapshot, i);

        if (s->node != s->bs &&
            !ram_reset_check_inherited(s->bs, s->node, errp)) {
            return false;
        }
    }
    return true;
}

GArray *ram_reset_snapshots_made_together(const GPtrArray *disks,
                                          BlockDriverState **bs,
                                          QEMUSnapshotInfo *sn, Error **errp)
{
    g_autoptr(GArray) all = ram_reset_disk_snapshots(disks, sn->name);
    BlockDriverState *without = *bs;

    add_inherited(all, disks, sn->name);
    for (unsigned i = 0; i < all->len; i++) {
        const DiskSnapshot *vm = &g_array_index(all, DiskSnapshot, i);
        g_autoptr(GArray) snapshots = NULL;

        if (vm->bs == *bs && ram_reset_snapshot_has_vmstate(vm->node,
                                                            &vm->sn)) {
            snapshots = find_in_all_disks(disks, all, vm, &without);
        }
        if (snapshots) {
            if (!check_inherited(snapshots, errp)) {
                return NULL;
            }
            *bs = vm->node;
            *sn = vm->sn;
            return g_steal_pointer(&snapshots);
        }
    }
    error_setg(errp, "Snapshot '%s' of '%s' was not made together with the one "
               "of '%s', which has the VM state; nothing has been changed",
               sn->name, bdrv_get_device_or_node_name(without),
               bdrv_get_device_or_node_name(*bs));
    error_append_hint(errp, "A save may have been interrupted. Delete the "
                      "snapshot with delvm, then save it again.\n");
    return NULL;
}

/* The snapshot that bdrv_snapshot_goto() takes; NULL if there is none */
static const QEMUSnapshotInfo *find_by_id_or_name(const QEMUSnapshotInfo *list,
                                                  int n, const char *id_or_name)
{
    for (int i = 0; i < n; i++) {
        if (!strcmp(list[i].id_str, id_or_name)) {
            return &list[i];
        }
    }
    for (int i = 0; i < n; i++) {
        if (!strcmp(list[i].name, id_or_name)) {
            return &list[i];
        }
    }
    return NULL;
}

/*
 * The id of the snapshot, or its name.  A name may be the id of another
 * snapshot; in a damaged image two snapshots may have one id.
 */
static const char *find_revert_key(const DiskSnapshot *s, Error **errp)
{
    const char *const keys[] = { s->sn.id_str, s->sn.name };
    g_autofree QEMUSnapshotInfo *list = NULL;
    int n = bdrv_snapshot_list(s->bs, &list);

    for (int i = 0; i < ARRAY_SIZE(keys); i++) {
        const QEMUSnapshotInfo *sn = find_by_id_or_name(list, n, keys[i]);

        if (sn && !strcmp(sn->id_str, s->sn.id_str) &&
            !strcmp(sn->name, s->sn.name) && have_same_times(sn, &s->sn)) {
            return keys[i];
        }
    }
    error_setg(errp, "the image is damaged, another snapshot has the ID '%s' "
               "as well; delete one of them", s->sn.id_str);
    return NULL;
}

static bool revert_to_key(BlockDriverState *bs, const char *key, bool *changed,
                          Error **errp)
{
    int64_t length = bdrv_getlength(bs);
    int ret;

    /* Only qcow2 reports the change */
    ram_reset_disk_changed = strcmp(bdrv_get_format_name(bs), "qcow2");
    ram_reset_disk_reverting = true;
    ret = bdrv_snapshot_goto(bs, key, errp);
    ram_reset_disk_reverting = false;
    *changed |= ram_reset_disk_changed || bdrv_getlength(bs) != length;
    return ret >= 0;
}

static bool revert_to_backing(BlockDriverState *bs, bool *changed, Error **errp)
{
    int ret;

    ram_reset_disk_reverting = true;
    ret = ram_reset_qcow2_empty(bs, changed);
    ram_reset_disk_reverting = false;
    if (ret < 0) {
        error_setg_errno(errp, -ret, "the overlay cannot be emptied");
    }
    return ret >= 0;
}

static bool revert_to_own(const DiskSnapshot *s, bool *changed, Error **errp)
{
    const char *key = find_revert_key(s, errp);

    return key && revert_to_key(s->bs, key, changed, errp);
}

static bool revert_disk(const DiskSnapshot *s, bool *changed, Error **errp)
{
    ERRP_GUARD();

    if (s->node == s->bs ? revert_to_own(s, changed, errp)
                         : revert_to_backing(s->bs, changed, errp)) {
        return true;
    }
    error_prepend(errp, "Could not load snapshot '%s' on '%s': ", s->sn.name,
                  bdrv_get_device_or_node_name(s->bs));
    return false;
}

bool ram_reset_revert(const GArray *snapshots, bool *changed, Error **errp)
{
    for (unsigned i = 0; i < snapshots->len; i++) {
        if (!revert_disk(&g_array_index(snapshots, DiskSnapshot, i), changed,
                         errp)) {
            return false;
        }
    }
    return true;
}
