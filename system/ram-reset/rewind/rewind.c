/*
 * RAM reset: restore RAM by undoing its changes
 *
 * After a load or a save, RAM is equal to a snapshot.  With rewind=on QEMU then
 * copies it to the baseline, and the dirty log has all later writes.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include <math.h>
#include "qapi/error.h"
#include "qemu/main-loop.h"
#include "qemu/module.h"
#include "qemu/timer.h"
#include "hw/core/cpu.h"
#include "qobject/qdict.h"
#include "system/ram-reset-rewind.h"
#include "system/system.h"
#include "system/ram-reset/block-list.h"
#include "system/ram-reset/block/block.h"
#include "system/ram-reset/block/vhost.h"
#include "system/ram-reset/machine/translated.h"
#include "system/ram-reset/measure/guest.h"
#include "system/ram-reset/options.h"
#include "system/ram-reset/reset.h"
#include "system/ram-reset/rewind/blockers.h"
#include "system/ram-reset/rewind/dirty-log.h"
#include "system/ram-reset/rewind/mappings.h"
#include "system/ram-reset/rewind/policy.h"
#include "system/ram-reset/rewind/restore.h"
#include "system/ram-reset/rewind/tracking.h"
#include "system/ram-reset/rewind/watch.h"
#include "system/ram-reset/template/store.h"
#include "system/ram-reset-load.h"
#include "system/ram-reset/trace.h"

/* Approximate time of a first write to a page under TCG */
#define TCG_FAULT_NS        300
/* Comparing does not pay for fewer faults, whatever a fault costs */
#define MANY_FAULTS         500
/* Approximate time to compare a page, before it has been measured */
#define COMPARE_NS          300

/* Protected by the BQL */
static struct {
    bool wanted;                /* by an object with rewind=on */
    GArray *blocks;             /* of BaselineBlock; NULL: no baseline */
    RamResetBlocker *blocker;   /* why there is no baseline */
    RamResetBlocker *early;     /* the same, before the first one */
    unsigned cpus, turn;
    bool late;                  /* earlier mappings are not noted */
    uint64_t size;              /* bytes in all copies */
    double fault_ns;            /* cost of tracking a page for the guest */
    double comparing;           /* time of the last comparison, in ns, or 0 */
    RewindChoice choice;
    RAMBlockNotifier notifier;
} rewind_state;

static void free_blocks(void)
{
    watch_end();
    g_clear_pointer(&rewind_state.blocks, g_array_unref);
    rewind_state.size = 0;
}

/* Takes the ownership of @why */
static void block_baseline(RamResetBlocker *why)
{
    g_autofree char *text = ram_reset_blocker_text(why);

    trace_ram_reset_block_baseline(text);
    free_blocks();
    qapi_free_RamResetBlocker(rewind_state.blocker);
    rewind_state.blocker = why;
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

static void block_added(RAMBlockNotifier *n, void *host, size_t size,
                        size_t max_size)
{
    ram_reset_drop_baseline(RAM_RESET_BLOCKER_RAM_ADDED);
    tracking_ram_added();
}

static bool is_in_baseline(const void *host)
{
    for (unsigned i = 0; rewind_state.blocks && i < rewind_state.blocks->len;
         i++) {
        if (g_array_index(rewind_state.blocks, BaselineBlock, i).host == host) {
            return true;
        }
    }
    return false;
}

/* Memory unplugged before the baseline was taken may be removed after it */
static void block_removed(RAMBlockNotifier *n, void *host, size_t size,
                          size_t max_size)
{
    if (is_in_baseline(host)) {
        ram_reset_drop_baseline(RAM_RESET_BLOCKER_RAM_REMOVED);
    }
}

static void block_resized(RAMBlockNotifier *n, void *host, size_t old_size,
                          size_t new_size)
{
    ram_reset_drop_baseline(RAM_RESET_BLOCKER_RAM_RESIZED);
}

/*
 * A device may write to RAM without the log, and be unplugged before anybody
 * checks.  VFIO must be notified of the dirty log.  Most hardware refuses it,
 * but QEMU takes a refusal for impossible.
 */
static bool before_plug(DeviceListener *listener, const QDict *opts,
                        bool from_json, Error **errp)
{
    ERRP_GUARD();
    const char *driver = qdict_get_try_str(opts, "driver");

    if (!driver || !rewind_state.wanted) {
        return false;
    }
    ram_reset_drop_baseline(RAM_RESET_BLOCKER_DEVICE_PLUGGED);
    if (g_str_has_prefix(driver, "vfio-")) {
        tracking_stop();
        if (ram_reset_dirty_log_is_on()) {
            error_setg(errp, "'%s' cannot be plugged while the guest is "
                       "stopped and a ram-reset object has rewind=on", driver);
            error_append_hint(errp, "Resume the guest, then plug it.\n");
        }
    }
    return false;
}

static void rewind_add_listeners(void)
{
    static DeviceListener plugging = { .hide_device = before_plug };

    if (!rewind_state.notifier.ram_block_added) {
        device_listener_register(&plugging);
        rewind_state.notifier.ram_block_added = block_added;
        rewind_state.notifier.ram_block_removed = block_removed;
        rewind_state.notifier.ram_block_resized = block_resized;
        ram_block_notifier_add(&rewind_state.notifier);
    }
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

static uint64_t size_limit(void)
{
    return ram_reset_smallest_limit(limit_of) ?: UINT64_MAX;
}

/* Returns the blocker, owned by the caller; NULL if there is a baseline now */
static RamResetBlocker *rewind_take_baseline(bool loaded)
{
    RamResetBlocker *why = tracking_blocker();
    g_autoptr(RamResetBlockList) list = ram_reset_list_blocks();

    if (why) {
        return why;
    }
    rewind_state.late &= !loaded;
    if (rewind_state.late) {
        return ram_reset_blocker_new(RAM_RESET_BLOCKER_OBJECT_LATE, NULL);
    }
    if (should_mlock(mlock_state)) {
        return ram_reset_blocker_new(RAM_RESET_BLOCKER_MEMORY_LOCKED, NULL);
    }
    for (unsigned i = 0; i < list->nr && !why; i++) {
        const RamResetBlock *blk = &list->blocks[i];

        why = baseline_add(rewind_state.blocks, blk, ram_reset_template(),
                           size_limit(), &rewind_state.size);
    }
    why = why ?: tracking_start(rewind_state.blocks);
    if (!why) {
        tracking_restart(rewind_state.blocks);
        watch_begin(rewind_state.blocks);
    }
    return why;
}

bool ram_reset_take_baseline(bool loaded)
{
    RamResetBlocker *why;
    int64_t before = get_clock();

    assert(bql_locked());
    free_blocks();
    g_clear_pointer(&rewind_state.blocker, qapi_free_RamResetBlocker);
    if (!ram_reset_rewind_wanted()) {
        return false;
    }
    rewind_add_listeners();
    rewind_state.blocks = baseline_new();
    rewind_state.cpus = count_cpus();
    rewind_state.choice = (RewindChoice) { 0 };
    qatomic_set(&ram_reset_flags.dirty_bits_taken, false);
    ram_reset_vhost_restart_log();
    translated_restart();
    why = rewind_take_baseline(loaded);
    if (why) {
        block_baseline(why);
        tracking_stop();
        tracking_warn(why);
        return false;
    }
    trace_ram_reset_take_baseline(rewind_state.size, get_clock() - before);
    return true;
}

/* An unplugged block leaves the snapshot before it is removed */
static bool is_baseline_of_all(void)
{
    unsigned nr = 0;
    RAMBlock *rb;

    RCU_READ_LOCK_GUARD();
    RAMBLOCK_FOREACH(rb) {
        if (qemu_ram_is_migratable(rb)) {
            BaselineBlock *base;

            if (nr == rewind_state.blocks->len) {
                return false;
            }
            base = &g_array_index(rewind_state.blocks, BaselineBlock, nr++);
            if (base->rb != rb || base->host != rb->host ||
                base->len != rb->used_length) {
                return false;
            }
        }
    }
    return nr == rewind_state.blocks->len;
}

const RamResetBlocker *ram_reset_rewind_blocker(void)
{
    RamResetBlocker *why;

    if (!rewind_state.blocks && rewind_state.blocker) {
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
    } else if (!is_baseline_of_all()) {
        ram_reset_drop_baseline(RAM_RESET_BLOCKER_RAM_CHANGED);
    } else if (rewind_state.cpus != count_cpus()) {
        ram_reset_drop_baseline(RAM_RESET_BLOCKER_VCPUS_CHANGED);
    }
    return rewind_state.blocks ? NULL : rewind_state.blocker;
}

/* The time of the last comparison; before the first one, an estimate */
static double expected_comparing(const RamResetBlockList *list)
{
    unsigned threads;
    uint64_t pages;

    if (rewind_state.comparing) {
        return rewind_state.comparing;
    }
    pages = restore_count_present(list, &threads);
    return (double)pages * COMPARE_NS / threads;
}

/* Measured when it matters: measuring takes longer than a load of few pages */
static double faults_ns(uint64_t pages)
{
    if (!rewind_state.fault_ns && pages < MANY_FAULTS) {
        return 0;
    }
    if (!rewind_state.fault_ns) {
        rewind_state.fault_ns = measure_write_fault() ?: TCG_FAULT_NS;
    }
    return pages * rewind_state.fault_ns;
}

void ram_reset_rewind(void)
{
    RewindChoice *choice = &rewind_state.choice;
    bool compare = choice->compare;
    int64_t before = get_clock();
    g_autoptr(RamResetBlockList) list = NULL;
    double faults;

    assert(bql_locked() && rewind_state.blocks);
    ram_reset_begin_unplanned();
    list = ram_reset_list_blocks();
    mappings_count_as_changed();
    translated_defer_flush();
    rewind_state.turn++;
    if (!compare) {
        ram_reset_dirty_sync();
    }
    faults = faults_ns(restore_all(list, rewind_state.blocks, rewind_state.turn,
                                   !compare));
    if (compare) {
        rewind_state.comparing = get_clock() - before;
    }
    rewind_choose(choice, faults, compare || rewind_choice_open(faults)
                                  ? expected_comparing(list) : INFINITY);
    if (compare && !choice->compare) {
        tracking_restart(rewind_state.blocks);
    }
    trace_ram_reset_rewind(faults, rewind_state.comparing, choice->compare);
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
    blocker = ram_reset_rewind_blocker();
    info->blocker = ram_reset_blocker_text(blocker);
    info->blocker_info = ram_reset_blocker_copy(blocker);
    return info;
}
