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
#include "qemu/main-loop.h"
#include "qemu/module.h"
#include "qemu/timer.h"
#include "hw/core/cpu.h"
#include "system/ram-reset-rewind.h"
#include "system/system.h"
#include "system/ram-reset/block-list.h"
#include "system/ram-reset/block/block.h"
#include "system/ram-reset/block/vhost.h"
#include "system/ram-reset/machine/translated.h"
#include "system/ram-reset/options.h"
#include "system/ram-reset/reset.h"
#include "system/ram-reset/rewind/blockers.h"
#include "system/ram-reset/rewind/changes.h"
#include "system/ram-reset/rewind/choice.h"
#include "system/ram-reset/rewind/dirty-log.h"
#include "system/ram-reset/rewind/events.h"
#include "system/ram-reset/rewind/mappings.h"
#include "system/ram-reset/rewind/points.h"
#include "system/ram-reset/rewind/record.h"
#include "system/ram-reset/rewind/restore.h"
#include "system/ram-reset/rewind/tracking.h"
#include "system/ram-reset/rewind/watch.h"
#include "system/ram-reset/template/store.h"
#include "system/ram-reset-load.h"
#include "system/ram-reset/trace.h"

/* Protected by the BQL */
static struct {
    bool wanted;                /* by an object with rewind=on */
    GArray *blocks;             /* of BaselineBlock; NULL: no baseline */
    RamResetBlocker *blocker;   /* why there is no baseline */
    RamResetBlocker *early;     /* the same, before the first one */
    unsigned cpus, turn;
    bool late;                  /* earlier mappings are not noted */
    uint64_t size;              /* bytes in all copies */
} rewind_state;

static void free_blocks(void)
{
    points_end();
    if (rewind_state.blocks) {
        watch_end(rewind_state.blocks);
        g_clear_pointer(&rewind_state.blocks, g_array_unref);
    }
    rewind_state.size = 0;
}

/* Takes the ownership of @why */
static void set_blocker(RamResetBlocker *why)
{
    g_autofree char *text = ram_reset_blocker_text(why);

    trace_ram_reset_block_baseline(text);
    qapi_free_RamResetBlocker(rewind_state.blocker);
    rewind_state.blocker = why;
}

/* Takes the ownership of @why */
static void block_baseline(RamResetBlocker *why)
{
    free_blocks();
    set_blocker(why);
}

void ram_reset_block_baseline(RamResetBlockerId why)
{
    block_baseline(ram_reset_blocker_new(why, NULL));
}

void ram_reset_drop_baseline(RamResetBlockerId why)
{
    if (rewind_state.blocks) {
        ram_reset_block_baseline(why);
    }
}

void ram_reset_lose_position(RamResetBlockerId why)
{
    if (rewind_state.blocks) {
        points_set_position(NULL);
    }
    set_blocker(ram_reset_blocker_new(why, NULL));
}

void ram_reset_stop_tracking(void)
{
    ram_reset_drop_baseline(RAM_RESET_BLOCKER_DIRTY_LOG_USED);
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
    ram_reset_drop_baseline(RAM_RESET_BLOCKER_OBJECTS_CHANGED);
    if (!wanted) {
        tracking_stop();
    }
}

static void rewind_follow_options(void)
{
    static Notifier notifier = { .notify = rewind_options_changed };

    ram_reset_add_options_notifier(&notifier);
}

/* Registered before any object exists */
type_init(rewind_follow_options)

static bool rewind_has_block(const void *host)
{
    for (unsigned i = 0; rewind_state.blocks && i < rewind_state.blocks->len;
         i++) {
        if (g_array_index(rewind_state.blocks, BaselineBlock, i).host == host) {
            return true;
        }
    }
    return false;
}

static unsigned count_cpus(void)
{
    unsigned nr = 0;
    CPUState *cpu;

    CPU_FOREACH(cpu) {
        nr++;
    }
    return nr;
}

static uint64_t limit_of(const RamReset *rr)
{
    return rr->rewind ? rr->rewind_limit : 0;
}

/* A snapshot has at most as many bytes as RAM */
static uint64_t size_limit(const RamResetBlockList *list)
{
    return ram_reset_smallest_limit(limit_of) ?: list->bytes;
}

/* Returns the blocker, owned by the caller; NULL if writes can be tracked */
static RamResetBlocker *rewind_check(bool loaded)
{
    RamResetBlocker *why = tracking_blocker();

    if (why) {
        return why;
    }
    rewind_state.late &= !loaded;
    if (rewind_state.late) {
        return ram_reset_blocker_new(RAM_RESET_BLOCKER_OBJECT_LATE, NULL);
    }
    return should_mlock(mlock_state)
           ? ram_reset_blocker_new(RAM_RESET_BLOCKER_MEMORY_LOCKED, NULL)
           : NULL;
}

/* The same for a new baseline, which is copied */
static RamResetBlocker *rewind_take_baseline(const RamResetBlockList *list)
{
    RamResetBlocker *why = NULL;

    rewind_state.blocks = baseline_new();
    for (unsigned i = 0; i < list->nr && !why; i++) {
        why = baseline_add(rewind_state.blocks, &list->blocks[i],
                           ram_reset_template(), size_limit(list),
                           &rewind_state.size);
    }
    if (!why) {
        points_begin(rewind_state.blocks, qemu_target_page_size());
    }
    return why;
}

/* Record RAM, which differs from the position in its @changes or as a whole */
static bool rewind_record(RamResetBlockList *list, bool whole,
                          RamResetMakeRoom *make_room)
{
    g_autoptr(RewindPoint) p = whole ? point_new(rewind_state.blocks)
                                     : point_copy(points_position());

    if (!record_all(list, rewind_state.blocks, p, whole,
                    size_limit(list) - rewind_state.size, make_room)) {
        return false;
    }
    points_set_position(g_steal_pointer(&p));
    return true;
}

/* A save: RAM differs from the position in what the log has */
static bool rewind_take_changes(RamResetMakeRoom *make_room)
{
    g_autoptr(RamResetBlockList) list = NULL;

    if (ram_reset_rewind_blocker()) {
        return false;
    }
    list = ram_reset_list_blocks();
    if (!baseline_fits(rewind_state.blocks, list)) {
        return false;
    }
    translated_restart();
    mappings_count_as_changed();
    ram_reset_dirty_sync();
    return rewind_record(list, false, make_room);
}

/* A whole load: RAM is compared with the baseline; without one it is copied */
static RamResetBlocker *rewind_take_all(bool loaded,
                                        RamResetMakeRoom *make_room)
{
    g_autoptr(RamResetBlockList) list = ram_reset_list_blocks();
    RamResetBlocker *why = rewind_check(loaded);

    if (rewind_state.blocks) {
        watch_end(rewind_state.blocks);
    }
    for (unsigned i = 0; rewind_state.blocks && i < list->nr && !why; i++) {
        why = baseline_block_blocker(&list->blocks[i]);
    }
    if (!why && !(rewind_state.blocks &&
                  baseline_fits(rewind_state.blocks, list) &&
                  rewind_record(list, true, make_room))) {
        free_blocks();
        why = rewind_take_baseline(list);
    }
    why = why ?: tracking_start(rewind_state.blocks);
    if (!why) {
        tracking_restart(rewind_state.blocks);
        watch_begin(rewind_state.blocks);
    }
    return why;
}

uint64_t ram_reset_take_point(bool loaded, RamResetMakeRoom *make_room)
{
    int64_t before = get_clock();
    RamResetBlocker *why;

    assert(bql_locked());
    if (!ram_reset_rewind_wanted()) {
        free_blocks();
        g_clear_pointer(&rewind_state.blocker, qapi_free_RamResetBlocker);
        return 0;
    }
    events_begin(rewind_has_block);
    if (loaded || !rewind_take_changes(make_room)) {
        if (!loaded) {
            free_blocks();
        }
        g_clear_pointer(&rewind_state.blocker, qapi_free_RamResetBlocker);
        rewind_state.cpus = count_cpus();
        choice_reset();
        qatomic_set(&ram_reset_flags.dirty_bits_taken, false);
        ram_reset_vhost_restart_log();
        translated_restart();
        why = rewind_take_all(loaded, make_room);
        if (why) {
            block_baseline(why);
            tracking_stop();
            tracking_warn(why);
            return 0;
        }
    }
    trace_ram_reset_take_point(rewind_state.size, points_size(),
                               points_tables(), get_clock() - before);
    return points_add_position();
}

bool ram_reset_has_point(uint64_t point)
{
    return points_find(point);
}

void ram_reset_query_point(uint64_t point, RamResetKnownSnapshot *info)
{
    const RewindPoint *p = points_find(point), *position = points_position();

    for (unsigned i = 0; i < p->nr; i++) {
        uint64_t shared = 0, own = 0;

        if (p->trees[i]) {
            page_tree_count(p->trees[i], &shared, &own);
            info->own_pages += own;
            info->shared_pages += shared;
            info->differing_pages +=
                position ? page_tree_count_diff(p->trees[i], position->trees[i])
                         : 0;
        }
    }
}

void ram_reset_drop_point(uint64_t point)
{
    points_drop(point);
}

void ram_reset_keep_log(void)
{
    bool before;

    if (ram_reset_rewind_blocker()) {
        qatomic_set(&ram_reset_flags.dirty_bits_taken, true);
        return;
    }
    ram_reset_dirty_sync();
    before = ram_reset_dirty_begin_fetch();
    for (unsigned i = 0; i < rewind_state.blocks->len; i++) {
        BaselineBlock *base = &g_array_index(rewind_state.blocks,
                                             BaselineBlock, i);

        if (base->copy) {
            changes_keep(base);
        }
    }
    ram_reset_dirty_end_fetch(before);
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
        block_baseline(why);
    } else if (qatomic_read(&ram_reset_flags.dirty_bits_taken)) {
        ram_reset_drop_baseline(RAM_RESET_BLOCKER_DIRTY_LOG_USED);
    } else if (!baseline_is_of_all(rewind_state.blocks)) {
        ram_reset_drop_baseline(RAM_RESET_BLOCKER_RAM_CHANGED);
    } else if (rewind_state.cpus != count_cpus()) {
        ram_reset_drop_baseline(RAM_RESET_BLOCKER_VCPUS_CHANGED);
    }
    return rewind_state.blocks ? NULL : rewind_state.blocker;
}

void ram_reset_rewind(uint64_t point)
{
    const RewindPoint *to = points_find(point);
    bool compare = choice_compares();
    int64_t before = get_clock();
    g_autoptr(RamResetBlockList) list = NULL;
    uint64_t faults;

    assert(bql_locked() && to);
    ram_reset_begin_unplanned();
    list = ram_reset_list_blocks();
    mappings_count_as_changed();
    translated_defer_flush();
    rewind_state.turn++;
    if (!compare) {
        ram_reset_dirty_sync();
    }
    faults = restore_all(list, rewind_state.blocks, to, rewind_state.turn,
                         !compare);
    points_go_to(point);
    choice_note(list, faults, get_clock() - before);
    if (compare && !choice_compares()) {
        tracking_restart(rewind_state.blocks);
    }
}

RamResetRewindInfo *ram_reset_query_rewind(void)
{
    const RamResetBlocker *blocker;
    RamResetRewindInfo *info;

    if (!ram_reset_rewind_wanted()) {
        return NULL;
    }
    info = g_new0(RamResetRewindInfo, 1);
    info->baseline = rewind_state.size;
    info->pages = points_size();
    info->tables = points_tables();
    blocker = ram_reset_rewind_blocker();
    info->blocker = ram_reset_blocker_text(blocker);
    info->blocker_info = ram_reset_blocker_copy(blocker);
    return info;
}
