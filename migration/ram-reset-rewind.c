/*
 * RAM reset: which snapshot can be rewound to
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "block/block.h"
#include "system/ram-reset-rewind.h"
#include "system/ram-reset-template.h"
#include "migration/misc.h"
#include "migration.h"
#include "options.h"
#include "qemu-file.h"
#include "ram.h"
#include "savevm.h"
#include "ram-reset-rewind.h"
#include "ram-reset-stream.h"

/* So many may be kept for nothing, running */
#define MAX_WASTED 2

typedef struct Snapshot {
    char *node;
    QEMUSnapshotInfo sn;
} Snapshot;

/* The snapshot whose content is kept, if ram_reset_rewind_blocker() has none */
static struct {
    Snapshot snapshot;
    bool ignore_shared, used;
    int64_t ram_end;
} kept;

static Snapshot last;           /* loaded or saved */
static unsigned wasted;         /* that nobody went back to, running */

/* A snapshot that is saved anew gets another id, or another date */
static bool same(const Snapshot *s, BlockDriverState *bs,
                 const QEMUSnapshotInfo *sn)
{
    return !g_strcmp0(bdrv_get_node_name(bs), s->node) &&
           !strcmp(sn->id_str, s->sn.id_str) && !strcmp(sn->name, s->sn.name) &&
           sn->vm_state_size == s->sn.vm_state_size &&
           sn->date_sec == s->sn.date_sec &&
           sn->date_nsec == s->sn.date_nsec &&
           sn->vm_clock_nsec == s->sn.vm_clock_nsec &&
           sn->icount == s->sn.icount;
}

static void set(Snapshot *s, BlockDriverState *bs, const QEMUSnapshotInfo *sn)
{
    g_free(s->node);
    s->node = g_strdup(bdrv_get_node_name(bs));
    s->sn = *sn;
}

const char *ram_reset_snapshot_blocker(BlockDriverState *bs,
                                       const QEMUSnapshotInfo *sn)
{
    const char *blocker = ram_reset_rewind_blocker();

    if (blocker) {
        return blocker;
    }
    if (!same(&kept.snapshot, bs, sn)) {
        return "RAM is not what this snapshot has, another one has been "
               "loaded or saved";
    }
    if (kept.ignore_shared != migrate_ignore_shared()) {
        return "migration capability 'x-ignore-shared' has been changed";
    }
    if (migrate_mapped_ram()) {
        return "migration capability 'mapped-ram' is on";
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
    if (event->type == MIG_EVENT_PRECOPY_SETUP) {
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
 * To keep what a load has read takes about as long as to read it, which is in
 * vain where snapshots take turns.
 */
static bool is_worth_keeping(BlockDriverState *bs, const QEMUSnapshotInfo *sn)
{
    bool again = same(&last, bs, sn);

    if (kept.snapshot.node) {
        wasted = kept.used ? 0 : wasted + 1;
        g_clear_pointer(&kept.snapshot.node, g_free);
    }
    set(&last, bs, sn);
    return again || wasted < MAX_WASTED;
}

static void keep(BlockDriverState *bs, const QEMUSnapshotInfo *sn,
                 int64_t ram_end, bool loaded)
{
    watch_migration();
    if (!ram_reset_take_baseline(migrate_ram_is_ignored, loaded)) {
        return;
    }
    if (ram_end <= 0) {
        ram_reset_forget_baseline("in the snapshot, RAM lies between other things");
        return;
    }
    set(&kept.snapshot, bs, sn);
    kept.ignore_shared = migrate_ignore_shared();
    kept.used = false;
    kept.ram_end = ram_end;
}

void ram_reset_snapshot_loaded(BlockDriverState *bs,
                               const QEMUSnapshotInfo *sn, int64_t ram_end)
{
    if (is_worth_keeping(bs, sn) || ram_reset_has_template()) {
        keep(bs, sn, ram_end, true);
    } else {
        ram_reset_no_baseline("snapshots have been loaded in turn, and what "
                              "was kept of them was of no use");
    }
}

void ram_reset_snapshot_saved(BlockDriverState *bs, const QEMUSnapshotInfo *sn,
                              int64_t ram_end)
{
    set(&last, bs, sn);
    keep(bs, sn, ram_end, false);
}

const char *ram_reset_snapshot_of_baseline(void)
{
    return ram_reset_rewind_blocker() ? NULL : kept.snapshot.sn.name;
}

int64_t ram_reset_file_position(QEMUFile *f)
{
    uint8_t *buf;

    /* Of a full buffer it is known how much has been read and not used */
    if (qemu_peek_buffer(f, &buf, RAM_STREAM_BUFFER, 0) != RAM_STREAM_BUFFER) {
        return -1;
    }
    return qemu_get_offset(f) - RAM_STREAM_BUFFER;
}

int64_t ram_reset_snapshot_ram_end(void)
{
    kept.used = true;
    return kept.ram_end;
}

bool ram_reset_snapshot_skip(QEMUFile *f, int64_t ram_end)
{
    int64_t here = ram_reset_file_position(f);

    if (here < 0) {
        return false;
    }
    qemu_set_offset(f, ram_end, SEEK_SET);
    if (qemu_peek_byte(f, 0) == QEMU_VM_SECTION_FOOTER) {
        return true;
    }
    qemu_set_offset(f, here, SEEK_SET);
    return false;
}
