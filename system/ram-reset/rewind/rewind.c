/*
 * RAM reset: restore RAM by undoing its changes
 *
 * After a load or a save, RAM is equal to a snapshot.  With rewind=on QEMU then
 * copies it to the baseline, or if there is one already, the pages in which it
 * differs to a point.  The dirty log has all later writes.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qapi/error.h"
#include "qemu/error-report.h"
#include "qemu/main-loop.h"
#include "qemu/module.h"
#include "qemu/timer.h"
#include "hw/core/cpu.h"
#include "system/ram-reset-disks.h"
#include "system/ram-reset-rewind.h"
#include "system/ram-reset/block-list.h"
#include "system/ram-reset/block/block.h"
#include "system/ram-reset/machine/translated.h"
#include "system/ram-reset/options.h"
#include "system/ram-reset/reset.h"
#include "system/ram-reset/rewind/blockers.h"
#include "system/ram-reset/rewind/choice.h"
#include "system/ram-reset/rewind/dirty-log.h"
#include "system/ram-reset/rewind/internal.h"
#include "system/ram-reset/rewind/mappings.h"
#include "system/ram-reset/rewind/points.h"
#include "system/ram-reset/rewind/restore.h"
#include "system/ram-reset/rewind/tracking.h"
#include "system/ram-reset/rewind/unread.h"
#include "system/ram-reset/rewind/watch.h"
#include "system/ram-reset-load.h"
#include "system/ram-reset/trace.h"

RewindState rewind_state;

void rewind_free_blocks(void)
{
    points_end();
    if (rewind_state.blocks) {
        watch_end(rewind_state.blocks);
        g_clear_pointer(&rewind_state.blocks, g_array_unref);
    }
    unread_set_store(NULL);
    rewind_state.size = rewind_state.first_point = 0;
}

/* Takes the ownership of @why */
static void set_blocker(RamResetBlocker *why)
{
    g_autofree char *text = ram_reset_blocker_text(why);

    trace_ram_reset_block_baseline(text);
    qapi_free_RamResetBlocker(rewind_state.blocker);
    rewind_state.blocker = why;
}

/* @users: pins of users count, too */
static void free_unpinned(bool users)
{
    if (!points_are_pinned(POINT_PIN_MEMORY) &&
        !(users && points_are_pinned(POINT_PIN_USER))) {
        rewind_free_blocks();
    } else {
        points_set_position(NULL);
        watch_end(rewind_state.blocks);
    }
}

void rewind_free_unpinned(void)
{
    free_unpinned(false);
}

/* Whether all points would be as good as before */
static bool spares_pins_of_users(RamResetBlockerId why)
{
    return why == RAM_RESET_BLOCKER_ALTERNATING ||
           why == RAM_RESET_BLOCKER_PINNED_SNAPSHOTS ||
           (why == RAM_RESET_BLOCKER_OBJECTS_CHANGED &&
            ram_reset_rewind_wanted());
}

void rewind_block(RamResetBlocker *why)
{
    free_unpinned(spares_pins_of_users(why->id));
    set_blocker(why);
}

void ram_reset_block_baseline(RamResetBlockerId why)
{
    rewind_block(ram_reset_blocker_new(why, NULL));
}

void ram_reset_drop_baseline(RamResetBlockerId why)
{
    if (points_position()) {
        ram_reset_block_baseline(why);
    }
}

/* Takes the ownership of @why */
static void lose_position(RamResetBlocker *why)
{
    if (rewind_state.blocks) {
        points_set_position(NULL);
        watch_end(rewind_state.blocks);
    }
    set_blocker(why);
}

void ram_reset_lose_position(RamResetBlockerId why)
{
    if (!rewind_state.blocker || !rewind_state.blocks ||
        why == RAM_RESET_BLOCKER_LOAD_FAILED) {
        lose_position(ram_reset_blocker_new(why, NULL));
    }
}

void ram_reset_stop_tracking(void)
{
    if (points_position()) {
        ram_reset_lose_position(RAM_RESET_BLOCKER_DIRTY_LOG_USED);
    }
    tracking_stop();
}

static void rewind_options_changed(Notifier *n, void *data)
{
    bool wanted = ram_reset_rewind_wanted();

    if (wanted != rewind_state.wanted) {
        rewind_state.wanted = wanted;
        mappings_note(wanted);
        rewind_state.late = phase_check(PHASE_MACHINE_READY);
    }
    if (rewind_state.blocks) {
        ram_reset_block_baseline(RAM_RESET_BLOCKER_OBJECTS_CHANGED);
    }
    if (!wanted) {
        tracking_stop();
    }
}

/*
 * The snapshot of the store is about to be deleted.  Read what other points
 * need of it.  If there are none, the next save or load takes a new baseline.
 */
static void read_before_deletion(BlockDriverState *bs, const char *id,
                                 const char *name)
{
    RamResetPageStore *store = unread_store();
    Error *err = NULL;

    if (!store || !store->is_of(store, bs, id, name)) {
        return;
    }
    if (points_has_others(rewind_state.first_point)) {
        if (unread_read_all(rewind_state.blocks, &err)) {
            return;
        }
        warn_report_err(err);
    }
    ram_reset_block_baseline(RAM_RESET_BLOCKER_UNKNOWN_SNAPSHOT);
}

static void rewind_follow_options(void)
{
    static Notifier notifier = { .notify = rewind_options_changed };

    ram_reset_add_options_notifier(&notifier);
    ram_reset_before_deletion_cb = read_before_deletion;
}

/* Registered before any object exists */
type_init(rewind_follow_options)

unsigned rewind_count_cpus(void)
{
    unsigned nr = 0;
    CPUState *cpu;

    CPU_FOREACH(cpu) {
        nr++;
    }
    return nr;
}

const RamResetBlocker *ram_reset_rewind_blocker(void)
{
    RamResetBlocker *why;

    if (rewind_state.blocker) {
        return rewind_state.blocker;
    }
    why = tracking_blocker();
    if (!rewind_state.blocks) {
        qapi_free_RamResetBlocker(rewind_state.early);
        rewind_state.early = why;
        return why ?: ram_reset_blocker(RAM_RESET_BLOCKER_NOTHING_LOADED);
    }
    if (why) {
        lose_position(why);
    } else if (qatomic_read(&ram_reset_flags.dirty_bits_taken)) {
        ram_reset_lose_position(RAM_RESET_BLOCKER_DIRTY_LOG_USED);
    } else if (!baseline_is_of_all(rewind_state.blocks)) {
        ram_reset_drop_baseline(RAM_RESET_BLOCKER_RAM_CHANGED);
    } else if (unread_store() && !unread_store()->is_there(unread_store())) {
        ram_reset_drop_baseline(RAM_RESET_BLOCKER_UNKNOWN_SNAPSHOT);
    } else if (rewind_state.cpus != rewind_count_cpus()) {
        ram_reset_lose_position(RAM_RESET_BLOCKER_VCPUS_CHANGED);
    }
    return rewind_state.blocker;
}

bool ram_reset_rewind(uint64_t point, Error **errp)
{
    const RewindPoint *to = points_find(point);
    bool compare = choice_compares();
    int64_t before = get_clock();
    g_autoptr(RamResetBlockList) list = NULL;
    uint64_t faults = 0;

    assert(bql_locked() && to);
    ram_reset_begin_unplanned();
    list = ram_reset_list_blocks();
    mappings_count_as_changed();
    translated_defer_flush();
    rewind_state.turn++;
    if (!compare) {
        ram_reset_dirty_sync();
    }
    if (!restore_all(list, rewind_state.blocks, to, rewind_state.turn, !compare,
                     &faults, errp)) {
        ram_reset_lose_position(RAM_RESET_BLOCKER_LOAD_FAILED);
        return false;
    }
    points_go_to(point);
    choice_note(list, faults, get_clock() - before);
    if (compare && !choice_compares()) {
        tracking_restart(rewind_state.blocks);
    }
    return true;
}

RamResetRewindInfo *ram_reset_query_rewind(void)
{
    const RamResetBlocker *blocker;
    RamResetRewindInfo *info;

    if (!ram_reset_rewind_wanted()) {
        return NULL;
    }
    info = g_new0(RamResetRewindInfo, 1);
    info->unread = unread_size(rewind_state.blocks);
    info->baseline = rewind_state.size - info->unread;
    info->pages = points_size();
    info->tables = points_tables();
    blocker = ram_reset_rewind_blocker();
    info->blocker = ram_reset_blocker_text(blocker);
    info->blocker_info = ram_reset_blocker_copy(blocker);
    return info;
}
