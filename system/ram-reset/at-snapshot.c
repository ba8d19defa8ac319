/*
 * RAM reset: qcow2 nodes that show the disk of an internal snapshot
 *
 * This is in qemu-img as well, which makes overlays over such nodes.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qapi/error.h"
#include "qobject/qdict.h"
#include "block/block_int.h"
#include "block/qcow2.h"
#include "system/ram-reset-at-snapshot.h"

static bool has_option(const BlockDriverState *bs)
{
    return qdict_haskey(bs->options, RAM_RESET_INTERNAL_SNAPSHOT);
}

/* A JSON file name may have a number: qcow2's own options take it as a text */
static bool check_option(BlockDriverState *bs, const QDict *options, int flags,
                         Error **errp)
{
    ERRP_GUARD();
    const QObject *now = qdict_get(bs->options, RAM_RESET_INTERNAL_SNAPSHOT);
    const QObject *new = qdict_get(options, RAM_RESET_INTERNAL_SNAPSHOT);

    if (!new != !now || (new && !qobject_is_equal(new, now))) {
        error_setg(errp, "Cannot change the option '"
                   RAM_RESET_INTERNAL_SNAPSHOT "'");
        return false;
    }
    if (new && qobject_type(new) != QTYPE_QSTRING) {
        error_setg(errp, "'" RAM_RESET_INTERNAL_SNAPSHOT "' must be a string");
        return false;
    }
    if (new && flags & BDRV_O_RDWR) {
        error_setg(errp, "A node with '" RAM_RESET_INTERNAL_SNAPSHOT "' must "
                   "be read-only");
        error_append_hint(errp, "Write to an overlay over it.\n");
        return false;
    }
    return true;
}

bool ram_reset_absorb_qdict(BlockDriverState *bs, QemuOpts *opts,
                            QDict *options, int flags, Error **errp)
{
    if (!check_option(bs, options, flags, errp)) {
        return false;
    }
    qdict_del(options, RAM_RESET_INTERNAL_SNAPSHOT);
    return qemu_opts_absorb_qdict(opts, options, errp);
}

static const QCowSnapshot *find_named(const BDRVQcow2State *s, const char *name)
{
    for (unsigned i = 0; i < s->nb_snapshots; i++) {
        if (!strcmp(s->snapshots[i].name, name)) {
            return &s->snapshots[i];
        }
    }
    return NULL;
}

int coroutine_mixed_fn ram_reset_at_snapshot(BlockDriverState *bs, Error **errp)
{
    BDRVQcow2State *s = bs->opaque;
    const QCowSnapshot *sn;
    const char *name;
    int ret;

    if (!has_option(bs)) {
        return 0;
    }
    name = qdict_get_str(bs->options, RAM_RESET_INTERNAL_SNAPSHOT);
    sn = find_named(s, name);
    if (!sn) {
        error_setg(errp, "The image has no internal snapshot '%s'", name);
        return -ENOENT;
    }
    ret = qcow2_snapshot_load_tmp(bs, sn->id_str, sn->name, errp);
    if (ret < 0) {
        return ret;
    }
    bs->total_sectors = sn->disk_size / BDRV_SECTOR_SIZE;
    s->nb_bitmaps = 0;
    return 0;
}

bool ram_reset_shown_snapshot(BlockDriverState *bs, QEMUSnapshotInfo *sn)
{
    g_autofree QEMUSnapshotInfo *list = NULL;
    BDRVQcow2State *s = bs->opaque;
    int n;

    if (!bs->drv ||
        bs->drv->bdrv_snapshot_load_tmp != qcow2_snapshot_load_tmp ||
        !has_option(bs)) {
        return false;
    }
    n = bdrv_snapshot_list(bs, &list);
    /* Two snapshots may have one name, but not one L1 table */
    for (int i = 0; i < n && i < s->nb_snapshots; i++) {
        if (s->snapshots[i].l1_table_offset == s->l1_table_offset) {
            *sn = list[i];
            return true;
        }
    }
    return false;
}
