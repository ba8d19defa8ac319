/*
 * The snapshot that a load can rewind to
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qapi/error.h"
#include "system/ram-reset-compat.h"
#include "system/ram-reset-load.h"
#include "system/ram-reset-rewind.h"
#include "system/ram-reset-template.h"
#include "migration/misc.h"
#include "migration/options.h"
#include "migration/ram-reset/baseline.h"
#include "migration/ram-reset/page-store.h"
#include "migration/ram-reset/parents.h"

/* A point is wasted if no load rewinds to it; limit for a row of them */
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
    if (!ram_reset_has_point(s->point)) {
        return ram_reset_blocker(RAM_RESET_BLOCKER_UNKNOWN_SNAPSHOT);
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

static bool make_room_for_save(void)
{
    return ram_reset_snapshot_drop_oldest(NULL);
}

/*
 * A point takes about as long as the load itself, and is wasted if more
 * snapshots alternate than there is room for.
 */
static bool make_room_for_load(void)
{
    bool was_rewound = false;
    bool dropped = ram_reset_snapshot_drop_oldest(&was_rewound);

    wasted = was_rewound ? 0 : wasted + dropped;
    return dropped;
}

/*
 * Whether RAM, just loaded, is equal to the point of @s.  To record it once more
 * might find no room.  If a load has failed, the baseline may be unreadable, and
 * RAM shall replace it.
 */
static bool pinned_point_is_valid(const RamResetSnapshot *s)
{
    const RamResetBlocker *blocker = ram_reset_rewind_blocker();
    bool failed = blocker && blocker->id == RAM_RESET_BLOCKER_LOAD_FAILED;

    return s->pinned && !migrate_mapped_ram() &&
           s->ignore_shared == migrate_ignore_shared() &&
           (failed ? ram_reset_point_is_whole(s->point)
                   : ram_reset_point_fits(s->point));
}

static void record_baseline(RamResetSnapshot *s, bool loaded,
                            RamResetPageStore *store)
{
    RamResetPageStore *parent;

    watch_migration();
    ram_reset_snapshot_set_current(s);
    if (s->vmstate || (loaded && pinned_point_is_valid(s))) {
        ram_reset_take_point(loaded, s->point, store, NULL);
        return;
    }
    ram_reset_drop_point(s->point);
    s->point = 0;
    s->was_rewound = false;
    if (migrate_mapped_ram() && ram_reset_rewind_wanted()) {
        /* QEMU calls no hook for pages of a mapped-ram snapshot */
        ram_reset_block_baseline(RAM_RESET_BLOCKER_MAPPED_RAM);
        ram_reset_stop_tracking();
        ram_reset_page_store_free(store);
        return;
    }
    parent = page_store_ref(store);
    s->point = ram_reset_take_point(loaded, 0, store, loaded
                                    ? make_room_for_load : make_room_for_save);
    s->ignore_shared = migrate_ignore_shared();
    ram_reset_pin_by_user(s->point, s->pinned);
    ram_reset_snapshots_trim();
    if (s->point && s->ram_end <= 0) {
        ram_reset_drop_baseline(RAM_RESET_BLOCKER_DEVICES_BETWEEN_RAM);
    }
    ram_reset_parents_add(s, parent);
}

void ram_reset_baseline_of_load(RamResetSnapshot *s, RamResetPageStore *store)
{
    if (s == ram_reset_snapshot_current() || wasted < MAX_WASTED ||
        s->vmstate || s->pinned || ram_reset_has_template()) {
        record_baseline(s, true, store);
    } else {
        ram_reset_page_store_free(store);
        ram_reset_block_baseline(RAM_RESET_BLOCKER_ALTERNATING);
        ram_reset_snapshots_trim();
    }
}

void ram_reset_ram_behind_end(Error **err)
{
    ram_reset_drop_baseline(RAM_RESET_BLOCKER_DEVICES_BETWEEN_RAM);
    if (ram_reset_verify_wanted() && !*err) {
        error_setg(err, "RAM cannot be verified: the VM state has more of it "
                   "behind its end");
    }
}

/* Only a snapshot that an image has may be dropped for it */
uint64_t ram_reset_baseline_of_memory(Error **errp)
{
    ERRP_GUARD();
    const RamResetBlocker *why;
    g_autofree char *text = NULL;
    uint64_t point = ram_reset_take_point(false, 0, NULL, make_room_for_save);

    watch_migration();
    if (!point) {
        why = ram_reset_rewind_blocker();
        text = ram_reset_blocker_text(why);
        error_setg(errp, "QEMU cannot keep RAM in memory: %s",
                   text ?: "no object has rewind=on");
        error_append_hint(errp, "%s, or set save-kind=image.\n",
                          why ? why->remedy : "set rewind=on");
    }
    return point;
}

/* No snapshot has this content: only the baseline stays */
void ram_reset_baseline_of_incoming(void)
{
    watch_migration();
    ram_reset_snapshot_set_current(NULL);
    ram_reset_drop_point(ram_reset_take_point(true, 0, NULL, NULL));
}

void ram_reset_note_rewind(RamResetSnapshot *s)
{
    s->was_rewound = true;
    wasted = 0;
}

void ram_reset_baseline_of_save(RamResetSnapshot *s, RamResetPageStore *store)
{
    record_baseline(s, false, store);
}

const char *ram_reset_baseline_tag(void)
{
    const RamResetSnapshot *s = ram_reset_snapshot_current();

    return s && ram_reset_has_point(s->point) && !ram_reset_rewind_blocker()
           ? s->info.name : NULL;
}
