/*
 * RAM reset: disks that snapshots do not include
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qapi/error.h"
#include "qapi/qapi-builtin-visit.h"
#include "block/block_int.h"
#include "block/snapshot.h"
#include "hw/block/flash.h"
#include "system/block-backend.h"
#include "system/ram-reset-compat.h"
#include "system/ram-reset-disks.h"
#include "system/ram-reset/disks.h"
#include "system/ram-reset/options.h"
#include "system/ram-reset/report.h"

/*
 * @name: name of a block node, of a -drive, or of the device that has the disk.
 * Returns whether there is such a disk; *@bs is NULL if it has no medium.
 */
static bool find_disk(const char *name, BlockDriverState **bs)
{
    g_autofree char *virtio = g_strdup_printf("%s/virtio-backend", name);
    BlockBackend *blk = blk_by_name(name) ?: blk_by_qdev_id(name, NULL) ?:
                        blk_by_qdev_id(virtio, NULL);

    *bs = blk ? blk_bs(blk) : bdrv_find_node(name);
    return blk || *bs;
}

/* Whether @name is the name of @bs, or of a node below it with its data */
static bool GRAPH_RDLOCK is_named(BlockDriverState *bs, const char *name)
{
    BlockDriverState *named;

    if (!find_disk(name, &named) || !named) {
        return false;
    }
    while (bs && bs != named) {
        bs = bdrv_primary_bs(bs);
    }
    return bs;
}

static bool GRAPH_RDLOCK is_excluded_by(RamReset *rr, BlockDriverState *bs)
{
    for (strList *name = rr->keep_disks; name; name = name->next) {
        if (is_named(bs, name->value)) {
            return true;
        }
    }
    return false;
}

static bool belongs_to_flash(BlockDriverState *bs)
{
    for (BlockBackend *blk = blk_all_next(NULL); blk; blk = blk_all_next(blk)) {
        DeviceState *dev = blk_bs(blk) == bs ? blk_get_attached_dev(blk)
                                             : NULL;

        if (dev && object_dynamic_cast(OBJECT(dev), TYPE_PFLASH_CFI01)) {
            return true;
        }
    }
    return false;
}

static bool GRAPH_RDLOCK has_vm_state(BlockDriverState *bs)
{
    g_autofree QEMUSnapshotInfo *list = NULL;
    int n = bdrv_snapshot_list(bs, &list);

    for (int i = 0; i < n; i++) {
        if (list[i].vm_state_size) {
            return true;
        }
    }
    return false;
}

/*
 * The content of a flash is in a RAM block, which is migrated; the device
 * writes it to its file when the VM runs after a load.  But flashes come first
 * among disks, so QEMU stores the VM state in a flash that can have snapshots,
 * or searches it there.  A QEMU without an object may have stored one.
 */
static bool GRAPH_RDLOCK is_in_vm_state(BlockDriverState *bs)
{
    return belongs_to_flash(bs) && !has_vm_state(bs);
}

static bool GRAPH_RDLOCK excludes_disk(BlockDriverState *bs)
{
    g_autoptr(GPtrArray) objs = ram_reset_objects();

    for (unsigned i = 0; i < objs->len; i++) {
        if (is_excluded_by(RAM_RESET(objs->pdata[i]), bs)) {
            return true;
        }
    }
    return objs->len && is_in_vm_state(bs);
}

static bool check_names(RamReset *rr, const strList *names, Error **errp)
{
    ERRP_GUARD();
    BlockDriverState *bs;

    for (; names; names = names->next) {
        if (!find_disk(names->value, &bs)) {
            ram_reset_error(rr, errp, "keep-disks names '%s', but there is no "
                            "such disk", names->value);
            error_append_hint(errp, "Give the node-name= or id= of a disk, see "
                              "'info block', or the id= of its device.\n");
            return false;
        }
    }
    return true;
}

bool ram_reset_check_keep_disks(RamReset *rr, Error **errp)
{
    return check_names(rr, rr->keep_disks, errp);
}

static void get_keep_disks(Object *obj, Visitor *v, const char *name,
                           void *opaque, Error **errp)
{
    visit_type_strList(v, name, &RAM_RESET(obj)->keep_disks, errp);
}

static void set_keep_disks(Object *obj, Visitor *v, const char *name,
                           void *opaque, Error **errp)
{
    RamReset *rr = RAM_RESET(obj);
    strList *names = NULL;

    if (!visit_type_strList(v, name, &names, errp)) {
        return;
    }
    if (rr->completed && phase_check(PHASE_MACHINE_READY) &&
        !check_names(rr, names, errp)) {
        qapi_free_strList(names);
        return;
    }
    qapi_free_strList(rr->keep_disks);
    rr->keep_disks = names;
}

void ram_reset_add_keep_disks(ObjectClass *oc)
{
    ram_reset_excludes_disk_cb = excludes_disk;
    object_class_property_add(oc, "keep-disks", "strList", get_keep_disks,
                              set_keep_disks, NULL, NULL);
    object_class_property_set_description(oc, "keep-disks",
        "Disks that savevm and loadvm do not change");
}
