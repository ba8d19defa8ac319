/*
 * The snapshot that a load can rewind to
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "system/ram-reset-compat.h"
#include "system/ram-reset-rewind.h"
#include "system/ram-reset-template.h"
#include "migration/misc.h"
#include "migration/options.h"
#include "migration/ram-reset/baseline.h"

/* A baseline is wasted if no load rewinds to it; limit for a row of them */
#define MAX_WASTED 2

/* Protected by the BQL */
static unsigned wasted;

const RamResetBlocker *
ram_reset_snapshot_rewind_blocker(const RamResetSnapshot *s)
{
    const RamResetBlocker *blocker = ram_reset_rewind_blocker();

    if (blocker) {
        return blocker;
    }
    if (s != ram_reset_snapshot_current() || !s->has_baseline) {
        return ram_reset_blocker(RAM_RESET_BLOCKER_OTHER_SNAPSHOT);
    }
    if (s->ignore_shared != migrate_ignore_shared()) {
        return ram_reset_blocker(RAM_RESET_BLOCKER_IGNORE_SHARED_CHANGED);
    }
    if (migrate_mapped_ram()) {
        return ram_reset_blocker(RAM_RESET_BLOCKER_MAPPED_RAM);
    }
    return NULL;
}

/*
 * A migration relies on side effects of the start of the dirty log, such as the
 * flush of TCG's TLBs.  They do not occur while tracking has the log on.
 */
static int migration_event(NotifierWithReturn *notifier,
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
        migration_add_notifier_mode(&notifiers[mode], migration_event, mode);
    }
}

/*
 * A baseline takes about as long as the load itself, and is wasted if snapshots
 * alternate.
 */
static bool is_worth_a_baseline(const RamResetSnapshot *s)
{
    RamResetSnapshot *last = ram_reset_snapshot_current();

    if (last && last->has_baseline) {
        wasted = last->was_rewound ? 0 : wasted + 1;
        last->has_baseline = false;
    }
    return s == last || wasted < MAX_WASTED;
}

static void record_baseline(RamResetSnapshot *s, bool loaded)
{
    watch_migration();
    ram_reset_snapshot_set_current(s);
    s->has_baseline = false;
    if (migrate_mapped_ram() && ram_reset_rewind_wanted()) {
        /* QEMU calls no hook for pages of a mapped-ram snapshot */
        ram_reset_block_baseline(RAM_RESET_BLOCKER_MAPPED_RAM);
        ram_reset_stop_tracking();
        return;
    }
    if (!ram_reset_take_baseline(loaded)) {
        return;
    }
    if (s->ram_end <= 0) {
        ram_reset_drop_baseline(RAM_RESET_BLOCKER_DEVICES_BETWEEN_RAM);
        return;
    }
    s->has_baseline = true;
    s->ignore_shared = migrate_ignore_shared();
    s->was_rewound = false;
}

void ram_reset_baseline_of_load(RamResetSnapshot *s)
{
    if (is_worth_a_baseline(s) || ram_reset_has_template()) {
        record_baseline(s, true);
    } else {
        ram_reset_block_baseline(RAM_RESET_BLOCKER_ALTERNATING);
    }
}

void ram_reset_baseline_of_save(RamResetSnapshot *s)
{
    record_baseline(s, false);
}

const char *ram_reset_baseline_tag(void)
{
    const RamResetSnapshot *s = ram_reset_snapshot_current();

    return s && s->has_baseline && !ram_reset_rewind_blocker() ? s->info.name
                                                               : NULL;
}
