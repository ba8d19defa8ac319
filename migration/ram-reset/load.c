/*
 * The course of a load
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qapi/error.h"
#include "qemu/timer.h"
#include "system/ram-reset-compat.h"
#include "system/ram-reset-load.h"
#include "system/ram-reset-rewind.h"
#include "system/ram-reset-template.h"
#include "migration/ram-reset.h"
#include "migration/migration.h"
#include "migration/options.h"
#include "migration/ram-reset/baseline.h"
#include "migration/ram-reset/check.h"
#include "migration/ram-reset/devices.h"
#include "migration/ram-reset/disk-snapshots.h"
#include "migration/ram-reset/incoming.h"
#include "migration/ram-reset/monitors.h"
#include "migration/ram-reset/page-store.h"
#include "migration/ram-reset/partial-load.h"
#include "migration/ram-reset/plan.h"
#include "migration/ram-reset/query.h"
#include "migration/ram-reset/save.h"
#include "migration/ram-reset/verify/devices.h"
#include "migration/ram-reset/verify/digest.h"
#include "migration/ram-reset/verify/ram.h"
#include "migration/ram-reset/vmstate/mapped-ram.h"
#include "migration/ram-reset/vmstate/ram-sections.h"
#include "migration/ram-reset/vmstate/stream.h"
#include "migration/ram-reset/vmstate/zero-run.h"
#include "system/ram-reset/machine/clock.h"
#include "system/ram-reset/machine/timers.h"
#include "system/ram-reset/machine/transfers.h"
#include "system/ram-reset/machine/vcpus.h"
#include "system/ram-reset/machine/vmgenid.h"
#include "system/ram-reset/trace.h"

/* The result of the checks of RAM */
typedef struct Verdict {
    bool ram_ended;             /* the last RAM section has been loaded */
    bool verified;
    bool ram_differs;           /* verify=on has found that */
    Error *err;                 /* why RAM differs from the snapshot */
} Verdict;

/* Protected by the BQL, as all of load_snapshot() is */
static struct {
    bool active;
    bool changed;               /* a disk or the machine has changed */
    bool vcpus_borrowed;
    GArray *disks;              /* a DiskSnapshot for each disk */
    BlockDriverState *bs;       /* the image with the VM state */
    RamResetSnapshot *snapshot;
    RamResetTimes times;
    LoadPlan plan;
    RamSections sections;
    bool skipped;               /* the current section has skipped RAM */
    Verdict verdict;
} load;

static int64_t load_now(void)
{
    return qemu_clock_get_ns(QEMU_CLOCK_REALTIME);
}

bool ram_reset_load_prepare(BlockDriverState *bs, QEMUSnapshotInfo *sn,
                            bool has_devices, strList *devices, Error **errp)
{
    g_autoptr(GPtrArray) disks = ram_reset_disks(has_devices, devices);
    g_autoptr(GArray) snapshots = NULL;
    RamResetSnapshot *snapshot;
    int64_t start = load_now();

    snapshots = ram_reset_snapshots_made_together(disks, &bs, sn, errp);
    if (!snapshots || !ram_reset_check_disks(disks, errp)) {
        return false;
    }
    snapshot = ram_reset_snapshot_get(bs, sn);
    if (!ram_reset_check_load(snapshot, bs, errp)) {
        return false;
    }
    ram_reset_monitors_no_delay();
    load.active = true;
    load.disks = g_steal_pointer(&snapshots);
    load.bs = bs;
    load.snapshot = snapshot;
    load.times = (RamResetTimes) { .start = start, .checked = load_now() };
    trace_ram_reset_load_begin(sn->name);
    return true;
}

int ram_reset_load_revert(Error **errp)
{
    if (!ram_reset_revert(load.disks, &load.changed, errp)) {
        return -1;
    }
    load_plan_decide(&load.plan, load.snapshot, load.bs);
    return 0;
}

QEMUFile *ram_reset_open_vmstate(BlockDriverState *bs, bool write)
{
    RamResetSnapshot *s = load.snapshot;

    if (write) {
        return ram_reset_save_open(bs);
    }
    return load.plan.way == LOAD_REWIND || load.plan.way == LOAD_COPY
           ? vmstate_cache_open(&s->cache, s->vmstate, load.bs, s->ram_end,
                                s->info.vm_state_size)
           : ram_stream_open(load.bs);
}

void ram_reset_load_reverted(void)
{
    load.changed = true;
    ram_reset_clear_migration_error();
    ram_reset_slots_change(true);
    if (ram_reset_enabled()) {
        ram_reset_vcpus_at_stop();
        ram_reset_vcpus_borrow();
        ram_reset_vcpus_begin_reset();
        load.vcpus_borrowed = true;
        load_plan_freeze(&load.plan);
    }
    load.times.reverted = load_now();
}

void ram_reset_load_begin(void)
{
    load_plan_check(&load.plan, load.bs);
    load.times.was_reset = load_now();
    ram_reset_vcpus_end_reset();
    ram_reset_tsc_kvm_begin();
    ram_reset_renew_vmgenid();
    ram_reset_end_transfers();
    load_plan_begin_ram(&load.plan, &load.verdict.err);
    if (load.plan.way == LOAD_WHOLE && ram_reset_rewind_wanted()) {
        load.sections.places = page_places_new();
    }
    load.times.zeroed = load_now();
}

void ram_reset_do_load_zeros(QEMUFile *f, ram_addr_t addr)
{
    uint64_t pages;

    if (load.active) {
        pages = ram_reset_consume_zeros(f, load.bs, addr);
        if (load.sections.places) {
            page_places_zeros(load.sections.places, pages);
        }
    }
}

void ram_reset_do_load_page(RAMBlock *rb, ram_addr_t offset, int flags)
{
    RamResetPage what = flags & RAM_SAVE_FLAG_ZERO ? RAM_RESET_PAGE_ZERO
                        : flags & RAM_SAVE_FLAG_XBZRLE ? RAM_RESET_PAGE_CHANGE
                        : RAM_RESET_PAGE_WRITE;

    ram_reset_page_loaded(rb, offset, what);
    if (load.sections.places) {
        page_places_record(load.sections.places, rb->idstr, offset, flags);
    }
}

/*
 * QEMU always loads the first section: sections of devices that must be loaded
 * before the rest of RAM may follow it.
 */
bool ram_reset_load_skip(QEMUFile *f)
{
    int64_t ram_end = load.plan.ram_end;
    bool mapped = migrate_mapped_ram() && ram_reset_enabled();

    if (!load.active) {
        return ram_reset_incoming_skip(f);
    }
    if (!ram_end && !mapped && !ram_reset_rewind_wanted() &&
        !ram_reset_templates_wanted() && !ram_reset_verify_wanted()) {
        return false;
    }
    ram_sections_enter(&load.sections, f, mapped);
    if (load.sections.count == 1) {
        return false;
    }
    if (!ram_end) {
        ram_sections_note_start(&load.sections, ram_sections_read_image,
                                load.bs);
        return false;
    }
    load.skipped = load.sections.count == 2 &&
                   ram_sections_skip(&load.sections, ram_end);
    if (load.sections.count == 2 && !load.skipped) {
        if ((load.plan.unchanged || load.snapshot->vmstate) &&
            !load.verdict.err) {
            error_setg(&load.verdict.err, "the end of RAM in the VM state has "
                       "moved, and unchanged devices were not loaded");
        }
        load_plan_give_up(&load.plan, ram_reset_blocker(
                              RAM_RESET_BLOCKER_VM_STATE_CHANGED));
    }
    return load.skipped;
}

void ram_reset_load_section(uint8_t type)
{
    load.sections.last = type == QEMU_VM_SECTION_END;
}

/* RAM is complete: after the last RAM section, unless the load is a rewind */
static void make_template_and_baseline(void)
{
    const LoadPlan *p = &load.plan;
    RamResetSnapshot *s = load.snapshot;

    if (load.verdict.err) {
        return;
    }
    if (!s->vmstate) {
        s->ram_end = MAX(p->ram_end ?: load.sections.end, 0);
    }
    if (p->way == LOAD_WHOLE && p->identity && s->ram_end) {
        ram_reset_template_make(p->identity, s->ram_end, true);
    }
    if (ram_reset_rewind_wanted()) {
        RamResetPageStore *store =
            page_store_new(load.bs, g_steal_pointer(&load.sections.places));

        page_store_set_snapshot(store, s);
        ram_reset_baseline_of_load(s, store);
    }
}

static void complete_zeroing(void)
{
    int64_t before = load_now();

    ram_reset_complete_zeroing();
    load.times.completing = load_now() - before;
    load.verdict.ram_ended = true;
}

void ram_reset_load_ram_done(int ret)
{
    Verdict *v = &load.verdict;
    bool last_section = load.sections.last || load.skipped;

    load.sections.last = load.skipped = false;
    if (!load.active) {
        ram_reset_incoming_ram_done(last_section, ret);
        return;
    } else if (v->ram_ended) {
        ram_reset_ram_behind_end(&v->err);
        return;
    } else if (!load.plan.ram_end) {
        ram_sections_note_end(&load.sections);
    }
    /* QEMU has not cleared pages that a mapped-ram snapshot does not store */
    if (last_section && !ret && migrate_mapped_ram() && ram_reset_enabled() &&
        !v->err) {
        ram_reset_clear_absent(load.bs, load.sections.start, &v->err);
    }
    if (last_section || ret) {
        complete_zeroing();
    }
    if (ret) {
        return;
    }
    if (last_section && load.plan.way != LOAD_REWIND) {
        make_template_and_baseline();
    }
    load.times.ram_loaded = load.times.ram_verified = load_now();
    if (last_section && ram_reset_verify_wanted() && !v->err) {
        v->verified = load.snapshot->vmstate
                      ? ram_reset_check_digest(load.snapshot->digest, &v->err)
                      : ram_reset_check_content(load.bs, &v->err);
        v->ram_differs = v->err;
        load.times.ram_verified = load_now();
    }
}

/* @ret is that of ram_reset_load_end(); returns true if it is negative */
static bool load_is_valid(int ret, Error **errp)
{
    int64_t ram_end = load.plan.ram_end ?: load.sections.end;
    Verdict *v = &load.verdict;

    if (ret < 0) {
        return true;
    }
    if (ret > 0) {
        error_setg(errp, "the VM state asks QEMU to end the load");
    } else if (v->err) {
        if (load.plan.way == LOAD_TEMPLATE ||
            (v->ram_differs && !load.snapshot->vmstate)) {
            ram_reset_template_remove("its RAM is not what the snapshot has");
        }
        error_propagate(errp, g_steal_pointer(&v->err));
    } else if (!v->ram_ended && ram_reset_enabled()) {
        error_setg(errp, "the VM state has no end of RAM, devices have been "
                   "loaded before RAM was complete");
    } else if (!v->verified && ram_reset_verify_wanted()) {
        error_setg(errp, "RAM cannot be verified: verify=on was set during the "
                   "load");
    } else {
        /* The position of devices in a mapped-ram snapshot is unknown */
        return !ram_reset_verify_wanted() || migrate_mapped_ram() ||
               ram_reset_check_devices(load.bs, &load.snapshot->info,
                                       load.snapshot->vmstate, ram_end, errp);
    }
    return false;
}

static RamResetLoadInfo *load_finish(bool success)
{
    LoadPlan *p = &load.plan;
    RamResetLoadInfo *info = g_new0(RamResetLoadInfo, 1);

    info->tag = g_strdup(load.snapshot->info.name);
    info->success = success;
    info->rewound = p->way == LOAD_REWIND;
    info->blocker_info = g_steal_pointer(&p->blocker);
    info->q_template = p->way == LOAD_TEMPLATE ? ram_reset_template_path()
                                               : NULL;
    info->devices_kept = p->unchanged;
    info->blocks = ram_reset_finish(success);
    info->phases = ram_reset_query_phases(&load.times);
    return info;
}

static void load_note_success(void)
{
    ram_reset_partial_load_clear();
    ram_reset_snapshot_set_current(ram_reset_enabled() ? load.snapshot : NULL);
    if (ram_reset_enabled()) {
        g_clear_pointer(&load.snapshot->map, g_array_unref);
        load.snapshot->map = ram_reset_map_copy();
    }
    ram_reset_expire_timers();
}

static void load_note_failure(void)
{
    if (!load.changed) {
        return;
    }
    ram_reset_partial_load_set(load.snapshot->info.name);
    if (load.times.was_reset) {
        if (load.verdict.ram_differs) {
            /* The log may lack a write, or the copy is wrong */
            ram_reset_block_baseline(RAM_RESET_BLOCKER_LOAD_FAILED);
        } else {
            ram_reset_lose_position(RAM_RESET_BLOCKER_LOAD_FAILED);
        }
        ram_reset_template_close();
        ram_reset_snapshot_set_current(NULL);
        ram_reset_snapshots_trim();
    }
}

bool ram_reset_load_end(int ret, Error **errp)
{
    RamResetLoadInfo *info;
    bool ok;

    if (!load.active) {
        return true;
    }
    if (load.vcpus_borrowed) {
        ram_reset_vcpus_return();
    }
    ram_reset_map_thaw();
    ram_reset_slots_change(false);
    load.times.end = load_now();
    ok = load_is_valid(ret, errp);
    load.times.verified = ram_reset_verify_wanted() ? load_now() : 0;
    ram_reset_code_finish(ok && !ret && load.plan.way == LOAD_REWIND,
                          ok && !ret);
    info = load_finish(ok && !ret);
    ram_reset_devices_loaded(load.snapshot, info->success);
    trace_ram_reset_load_end(info->tag, ret, info->phases->total);
    if (info->success) {
        load_note_success();
    } else {
        load_note_failure();
    }
    ram_reset_count_load(info);
    error_free(load.verdict.err);
    load_plan_clear(&load.plan);
    page_places_free(load.sections.places);
    g_array_unref(load.disks);
    memset(&load, 0, sizeof(load));
    return ok;
}
