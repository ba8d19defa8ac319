/*
 * QMP command that pins a known snapshot
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "block/block.h"
#include "qapi/error.h"
#include "qapi/qapi-commands-ram-reset.h"
#include "system/ram-reset-rewind.h"
#include "migration/ram-reset.h"
#include "migration/ram-reset/snapshot.h"

static bool pin_is_there(const RamResetSnapshot *s)
{
    BlockDriverState *bs = bdrv_find_node(s->node);

    return !bs || !ram_reset_snapshot_is_gone(bs, &s->info);
}

/* Several may have the name.  A pinned one may have lost its copy of RAM. */
static RamResetSnapshot *pin_find(const char *tag, bool pinned)
{
    g_autoptr(GList) all = ram_reset_snapshots();
    RamResetSnapshot *found = NULL;

    for (GList *l = all; l; l = l->next) {
        RamResetSnapshot *s = l->data;

        if (strcmp(s->info.name, tag) || !pin_is_there(s)) {
            continue;
        }
        if (!pinned && s->pinned) {
            return s;
        }
        if (!found && ram_reset_has_point(s->point)) {
            found = s;
        }
    }
    return found;
}

static void pin_explain(const char *tag, Error **errp)
{
    if (!ram_reset_rewind_wanted()) {
        error_setg(errp, "Snapshot '%s' cannot be pinned: no object has "
                   "rewind=on", tag);
    } else if (ram_reset_exists(tag)) {
        error_setg(errp, "QEMU has no copy of the RAM of snapshot '%s': load "
                   "the snapshot first", tag);
    } else {
        error_setg(errp, "Snapshot '%s' does not exist: save it first", tag);
    }
}

void qmp_ram_reset_pin(const char *tag, bool pinned, Error **errp)
{
    RamResetSnapshot *s = pin_find(tag, pinned);

    if (!s) {
        pin_explain(tag, errp);
    } else if (!pinned && s->vmstate && !s->pinned) {
        error_setg(errp, "Snapshot '%s' is in memory only, and stays pinned "
                   "until it is deleted, or stored by ram-reset-store", tag);
    } else {
        s->pinned = pinned;
        ram_reset_pin_by_user(s->point, pinned);
    }
}
