/*
 * RAM reset: take points that a rewind can go to
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/main-loop.h"
#include "qemu/timer.h"
#include "system/ram-reset-compat.h"
#include "system/ram-reset-rewind.h"
#include "system/system.h"
#include "system/ram-reset/block-list.h"
#include "system/ram-reset/block/vhost.h"
#include "system/ram-reset/machine/translated.h"
#include "system/ram-reset/options.h"
#include "system/ram-reset/reset.h"
#include "system/ram-reset/rewind/baseline.h"
#include "system/ram-reset/rewind/blockers.h"
#include "system/ram-reset/rewind/changes.h"
#include "system/ram-reset/rewind/choice.h"
#include "system/ram-reset/rewind/dirty-log.h"
#include "system/ram-reset/rewind/events.h"
#include "system/ram-reset/rewind/internal.h"
#include "system/ram-reset/rewind/mappings.h"
#include "system/ram-reset/rewind/points.h"
#include "system/ram-reset/rewind/record.h"
#include "system/ram-reset/rewind/restore.h"
#include "system/ram-reset/rewind/tracking.h"
#include "system/ram-reset/rewind/unread.h"
#include "system/ram-reset/rewind/watch.h"
#include "system/ram-reset/template/store.h"
#include "system/ram-reset/trace.h"

/* Pages for which memory is prepared; 16 MiB of 4 KiB pages */
#define MAX_EXPECTED 4096

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

/* The same for a new baseline; takes *@store over */
static RamResetBlocker *rewind_take_baseline(const RamResetBlockList *list,
                                             RamResetPageStore **store)
{
    RamResetBlocker *why = NULL;

    rewind_state.blocks = baseline_new();
    rewind_state.in_template = ram_reset_has_template();
    unread_set_store(g_steal_pointer(store));
    for (unsigned i = 0; i < list->nr && !why; i++) {
        why = baseline_add(rewind_state.blocks, &list->blocks[i],
                           ram_reset_template(), unread_store(),
                           size_limit(list), &rewind_state.size);
    }
    if (!why) {
        points_begin(rewind_state.blocks, qemu_target_page_size());
    }
    return why;
}

/*
 * Record RAM.  It differs from the position in what the log has, or, if @whole,
 * in any page.
 */
static bool rewind_record(RamResetBlockList *list, bool whole,
                          RamResetMakeRoom *make_room)
{
    g_autoptr(RewindPoint) p = whole ? point_new(rewind_state.blocks)
                                     : point_copy(points_position());
    uint64_t limit = size_limit(list);

    if (!rewind_state.in_template) {
        limit -= MIN(limit, rewind_state.size);
    }
    if (!record_all(list, rewind_state.blocks, p, whole, limit, make_room)) {
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

/* Objects may have changed while the position was unknown; @list fits */
static void adopt_owners(const RamResetBlockList *list)
{
    for (unsigned i = 0; i < list->nr; i++) {
        g_array_index(rewind_state.blocks, BaselineBlock, i).owner =
            list->blocks[i].owner;
    }
}

/*
 * Make RAM the position, which is the point @point, or the baseline if RAM was
 * loaded from the store of that, or found by a comparison.
 */
static bool take_position(RamResetBlockList *list, uint64_t point,
                          const RamResetPageStore *store,
                          RamResetMakeRoom *make_room)
{
    if (point) {
        points_go_to(point);
        return true;
    }
    if (store && unread_store() && !strcmp(store->id, unread_store()->id)) {
        points_set_position(point_new(rewind_state.blocks));
        rewind_state.first_point = 0;
        return true;
    }
    return unread_read_all(rewind_state.blocks, NULL) &&
           rewind_record(list, true, make_room);
}

/*
 * Returns the blocker if points are pinned, so that RAM cannot become the
 * baseline; NULL if it can.  Pins of users do not hold if the points are of no
 * use, because RAM blocks differ or the baseline cannot be read.
 */
static RamResetBlocker *blocking_pins(bool fits)
{
    bool was_read = !unread_store();

    if (fits && was_read && points_are_pinned(POINT_PIN_USER)) {
        return ram_reset_blocker_new(RAM_RESET_BLOCKER_PINNED_SNAPSHOTS,
                                     "rewind-limit");
    }
    return points_are_pinned(POINT_PIN_MEMORY)
           ? ram_reset_blocker_new(RAM_RESET_BLOCKER_MEMORY_SNAPSHOTS,
                                   fits ? "rewind-limit" : "RAM blocks differ")
           : NULL;
}

/* If there is no baseline that fits, RAM becomes the baseline */
static RamResetBlocker *rewind_take_all(RamResetBlockList *list, uint64_t point,
                                        RamResetPageStore **store,
                                        RamResetMakeRoom *make_room)
{
    bool fits = rewind_state.blocks && baseline_fits(rewind_state.blocks, list);
    RamResetBlocker *why = NULL;

    if (rewind_state.blocks) {
        watch_end(rewind_state.blocks);
    }
    for (unsigned i = 0; fits && i < list->nr && !why; i++) {
        why = baseline_block_blocker(&list->blocks[i]);
    }
    if (why) {
        return why;
    }
    if (fits) {
        adopt_owners(list);
    }
    if (!fits || !take_position(list, point, *store, make_room)) {
        why = blocking_pins(fits);
        if (why) {
            return why;
        }
        rewind_free_blocks();
        why = rewind_take_baseline(list, store);
    }
    why = why ?: tracking_start(rewind_state.blocks);
    if (!why) {
        tracking_restart(rewind_state.blocks);
        watch_begin(rewind_state.blocks);
    }
    return why;
}

/* RAM has changed without the log; @point as for ram_reset_take_point() */
static bool rewind_restart(bool loaded, uint64_t point,
                           RamResetPageStore **store,
                           RamResetMakeRoom *make_room)
{
    g_autoptr(RamResetBlockList) list = ram_reset_list_blocks();
    RamResetBlocker *why;

    g_clear_pointer(&rewind_state.blocker, qapi_free_RamResetBlocker);
    rewind_state.cpus = rewind_count_cpus();
    choice_reset();
    qatomic_set(&ram_reset_flags.dirty_bits_taken, false);
    ram_reset_vhost_restart_log();
    translated_restart();
    why = rewind_check(loaded) ?:
          rewind_take_all(list, point, store, make_room);
    if (why) {
        rewind_block(why);
        tracking_stop();
        tracking_warn(why);
    }
    return !why;
}

/* The same; *@store is set to NULL if it is taken over */
static uint64_t take_point(bool loaded, uint64_t point,
                           RamResetPageStore **store,
                           RamResetMakeRoom *make_room)
{
    int64_t before = get_clock();

    if (!ram_reset_rewind_wanted()) {
        rewind_free_unpinned();
        if (!rewind_state.blocks) {
            g_clear_pointer(&rewind_state.blocker, qapi_free_RamResetBlocker);
        }
        return 0;
    }
    events_begin(rewind_has_block);
    if ((loaded || !rewind_take_changes(make_room)) &&
        !rewind_restart(loaded, point, store, make_room)) {
        return 0;
    }
    trace_ram_reset_take_point(rewind_state.size, points_size(),
                               points_tables(), get_clock() - before);
    point = point ?: points_add_position();
    rewind_state.first_point = rewind_state.first_point ?: point;
    return point;
}

uint64_t ram_reset_take_point(bool loaded, uint64_t point,
                              RamResetPageStore *store,
                              RamResetMakeRoom *make_room)
{
    uint64_t number, size = points_size();

    assert(bql_locked());
    number = take_point(loaded, point, &store, make_room);
    ram_reset_page_store_free(store);
    rewind_state.expected = points_size() > size
        ? MIN((points_size() - size) / qemu_target_page_size(), MAX_EXPECTED)
        : 0;
    return number;
}

bool ram_reset_has_point(uint64_t point)
{
    return points_find(point);
}

static void count_pages(const RewindPoint *p, uint64_t *shared, uint64_t *own)
{
    *shared = *own = 0;
    for (unsigned i = 0; i < p->nr; i++) {
        uint64_t shared_here, own_here;

        if (p->trees[i]) {
            page_tree_count(p->trees[i], NULL, &shared_here, &own_here);
            *shared += shared_here;
            *own += own_here;
        }
    }
}

uint64_t ram_reset_own_pages(uint64_t point)
{
    uint64_t shared, own;

    count_pages(points_find(point), &shared, &own);
    return own;
}

void ram_reset_query_point(uint64_t point, RamResetKnownSnapshot *info)
{
    const RewindPoint *p = points_find(point), *position = points_position();

    count_pages(p, &info->shared_pages, &info->own_pages);
    for (unsigned i = 0; position && i < p->nr; i++) {
        if (p->trees[i]) {
            info->differing_pages +=
                page_tree_count_diff(p->trees[i], position->trees[i]);
        }
    }
}

void ram_reset_drop_point(uint64_t point)
{
    points_drop(point);
    if (!ram_reset_rewind_wanted() && !points_are_pinned(POINT_PIN_MEMORY)) {
        rewind_free_blocks();
    }
}

/* While the guest runs, and in steps: the BQL is held */
static void prepare_room(void *opaque)
{
    if (points_pool() && page_pool_prepare(points_pool(),
                                           rewind_state.expected)) {
        aio_bh_schedule_oneshot(iohandler_get_aio_context(), prepare_room,
                                NULL);
    }
}

/* The next save probably stores as many pages; half of its time are faults */
bool ram_reset_pin_point(uint64_t point, Error **errp)
{
    if (!unread_read_all(rewind_state.blocks, errp)) {
        return false;
    }
    points_pin(point, POINT_PIN_MEMORY);
    aio_bh_schedule_oneshot(iohandler_get_aio_context(), prepare_room, NULL);
    return true;
}

bool ram_reset_point_fits(uint64_t point)
{
    g_autoptr(RamResetBlockList) list = ram_reset_list_blocks();

    return points_find(point) && baseline_fits(rewind_state.blocks, list);
}

bool ram_reset_copy_point(uint64_t point, Error **errp)
{
    g_autoptr(RamResetBlockList) list = NULL;
    uint64_t faults;

    assert(bql_locked());
    points_set_position(NULL);
    ram_reset_begin_unplanned();
    list = ram_reset_list_blocks();
    adopt_owners(list);
    return restore_all(list, rewind_state.blocks, points_find(point),
                       ++rewind_state.turn, false, &faults, errp);
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
