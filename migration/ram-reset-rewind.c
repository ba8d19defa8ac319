/*
 * RAM reset: which snapshot can be rewound to
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "block/block.h"
#include "system/ram-reset-compat.h"
#include "system/ram-reset-rewind.h"
#include "system/ram-reset-template.h"
#include "migration/misc.h"
#include "options.h"
#include "migration/ram-reset-identity.h"
#include "migration/ram-reset-layout.h"
#include "migration/ram-reset-rewind.h"

/* How many baselines in a row may be wasted, that is, never rewound to */
#define MAX_WASTED 2

static const char mapped_ram[] = "migration capability 'mapped-ram' is on";

/* BQL.  What RAM's baseline is of, if ram_reset_rewind_blocker() has none */
static struct {
    char *key;                  /* of the snapshot; NULL if there is none */
    char *tag;
    bool ignore_shared, used;
    int64_t ram_end;
    char *last;                 /* key of what was loaded or saved last */
    unsigned wasted;            /* baselines, in a row */
} baseline;

const char *ram_reset_snapshot_rewind_blocker(BlockDriverState *bs,
                                              const QEMUSnapshotInfo *sn)
{
    const char *blocker = ram_reset_rewind_blocker();
    g_autofree char *key = NULL;

    if (blocker) {
        return blocker;
    }
    key = ram_reset_snapshot_key(bs, sn);
    if (g_strcmp0(key, baseline.key)) {
        return "RAM is not what this snapshot has, another one has been "
               "loaded or saved";
    }
    if (baseline.ignore_shared != migrate_ignore_shared()) {
        return "migration capability 'x-ignore-shared' has been changed";
    }
    if (migrate_mapped_ram()) {
        return mapped_ram;
    }
    return NULL;
}

/*
 * A migration relies on what starting the dirty log does, such as flushing
 * TCG's TLBs, which does not happen while we have it on.
 */
static int migration_changes(NotifierWithReturn *notifier,
                             MigrationEvent *event, Error **errp)
{
    if (event->type == MIG_EVENT_SETUP) {
        ram_reset_stop_tracking();
    }
    return 0;
}

static void watch_migration(void)
{
    static NotifierWithReturn notifiers[MIG_MODE__MAX];

    for (int mode = 0; mode < MIG_MODE__MAX && !notifiers[mode].notify;
         mode++) {
        migration_add_notifier_mode(&notifiers[mode], migration_changes, mode);
    }
}

/*
 * To copy what a load has read takes about as long as to read it, which is
 * wasted where snapshots take turns.
 */
static bool is_worth_a_baseline(BlockDriverState *bs,
                                const QEMUSnapshotInfo *sn)
{
    g_autofree char *key = ram_reset_snapshot_key(bs, sn);
    bool again = !g_strcmp0(key, baseline.last);

    if (baseline.key) {
        baseline.wasted = baseline.used ? 0 : baseline.wasted + 1;
        g_clear_pointer(&baseline.key, g_free);
    }
    g_free(baseline.last);
    baseline.last = g_steal_pointer(&key);
    return again || baseline.wasted < MAX_WASTED;
}

static void take_baseline(BlockDriverState *bs, const QEMUSnapshotInfo *sn,
                          int64_t ram_end, bool loaded)
{
    watch_migration();
    if (migrate_mapped_ram() && ram_reset_rewind_wanted()) {
        /* Nobody has said what has been loaded */
        ram_reset_no_baseline(mapped_ram);
        ram_reset_stop_tracking();
        return;
    }
    if (!ram_reset_take_baseline(&ram_reset_migrate_ignored, loaded)) {
        return;
    }
    if (ram_end <= 0) {
        ram_reset_forget_baseline("in the snapshot, RAM lies between other "
                                  "things");
        return;
    }
    g_free(baseline.key);
    g_free(baseline.tag);
    baseline.key = ram_reset_snapshot_key(bs, sn);
    baseline.tag = g_strdup(sn->name);
    baseline.ignore_shared = migrate_ignore_shared();
    baseline.used = false;
    baseline.ram_end = ram_end;
}

void ram_reset_baseline_of_load(BlockDriverState *bs,
                                const QEMUSnapshotInfo *sn, int64_t ram_end)
{
    if (is_worth_a_baseline(bs, sn) || ram_reset_has_template()) {
        take_baseline(bs, sn, ram_end, true);
    } else {
        ram_reset_no_baseline("snapshots have been loaded in turn, and their "
                              "baselines were wasted");
    }
}

void ram_reset_baseline_of_save(BlockDriverState *bs,
                                const QEMUSnapshotInfo *sn, int64_t ram_end)
{
    g_free(baseline.last);
    baseline.last = ram_reset_snapshot_key(bs, sn);
    take_baseline(bs, sn, ram_end, false);
}

const char *ram_reset_baseline_tag(void)
{
    return ram_reset_rewind_blocker() ? NULL : baseline.tag;
}

int64_t ram_reset_baseline_ram_end(BlockDriverState *bs,
                                   const QEMUSnapshotInfo *sn)
{
    return ram_reset_snapshot_rewind_blocker(bs, sn) ? 0 : baseline.ram_end;
}

int64_t ram_reset_baseline_use(void)
{
    baseline.used = true;
    return baseline.ram_end;
}
