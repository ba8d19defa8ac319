/*
 * RAM reset in the course of loading a snapshot
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qapi/error.h"
#include "qemu/timer.h"
#include "system/ram-reset-load.h"
#include "system/ram-reset-rewind.h"
#include "system/ram-reset-template.h"
#include "migration/ram-reset.h"
#include "migration.h"
#include "options.h"
#include "ram.h"
#include "savevm.h"
#include "migration/ram-reset-check.h"
#include "migration/ram-reset-clock.h"
#include "migration/ram-reset-devices.h"
#include "migration/ram-reset-disk-snapshots.h"
#include "migration/ram-reset-identity.h"
#include "migration/ram-reset-kept.h"
#include "migration/ram-reset-layout.h"
#include "migration/ram-reset-mapped.h"
#include "migration/ram-reset-monitors.h"
#include "migration/ram-reset-query.h"
#include "migration/ram-reset-rewind.h"
#include "migration/ram-reset-save.h"
#include "migration/ram-reset-sections.h"
#include "migration/ram-reset-timers.h"
#include "migration/ram-reset-vcpus.h"
#include "migration/ram-reset-verify.h"
#include "migration/ram-reset-verify-devices.h"
#include "migration/ram-reset-vmgenid.h"
#include "migration/ram-reset-whole.h"
#include "migration/ram-reset-zeros.h"
#include "system/ram-reset/trace.h"

/* How RAM becomes what the snapshot has, if not by loading it */
typedef struct Shortcut {
    bool rewound, from_template;        /* not both */
    int64_t ram_end;            /* where to skip to; 0 if RAM is to be loaded */
    bool skipped;               /* in the section that is being loaded */
    char *rewind_blocker;       /* why it was not rewound, with rewind=on */
    char *identity;             /* of its template; NULL if it may have none */
} Shortcut;

/* Whether RAM is what the snapshot has */
typedef struct Verdict {
    bool ram_ended;             /* the VM state has an end of RAM */
    bool verified;
    Error *err;                 /* why RAM is not what it was */
} Verdict;

/* Protected by the BQL, as all of load_snapshot() is */
static struct {
    bool active;
    bool changed;               /* the VM is not what it was */
    bool vcpus_borrowed;
    GArray *disks;              /* DiskSnapshot of each */
    BlockDriverState *bs;       /* where the VM state is */
    QEMUSnapshotInfo sn;
    RamResetTimes times;
    RamSections sections;
    Shortcut shortcut;
    Verdict verdict;
} load;

static int64_t now(void)
{
    return qemu_clock_get_ns(QEMU_CLOCK_REALTIME);
}

bool ram_reset_load_prepare(BlockDriverState *bs, QEMUSnapshotInfo *sn,
                            bool has_devices, strList *devices, Error **errp)
{
    g_autoptr(GPtrArray) disks = ram_reset_disks(has_devices, devices);
    g_autoptr(GArray) parts = NULL;
    int64_t start = now();

    parts = ram_reset_snapshots_made_together(disks, bs, sn, errp);
    if (!parts || !ram_reset_check_disks(disks, errp) ||
        !ram_reset_check_load(bs, sn, errp)) {
        return false;
    }
    ram_reset_monitors_no_delay();
    load.active = true;
    load.disks = g_steal_pointer(&parts);
    load.bs = bs;
    load.sn = *sn;
    load.sections.last = false;
    load.times = (RamResetTimes) { .start = start, .checked = now() };
    trace_ram_reset_load_begin(load.sn.name);
    return true;
}

int ram_reset_load_revert(Error **errp)
{
    return ram_reset_revert(load.disks, &load.changed, errp) ? 0 : -1;
}

QEMUFile *ram_reset_open_vmstate(BlockDriverState *bs, bool write)
{
    if (write) {
        return ram_reset_save_open(bs);
    }
    return ram_reset_kept_open(bs, &load.sn, ram_reset_rewind_wanted() ?
                               ram_reset_baseline_ram_end(bs, &load.sn) : 0);
}

void ram_reset_load_reverted(void)
{
    load.changed = true;
    ram_reset_clear_migration_error();
    ram_reset_slots_change(true);
    if (ram_reset_enabled()) {
        g_autofree char *key = ram_reset_snapshot_key(load.bs, &load.sn);

        ram_reset_vcpus_at_stop();
        ram_reset_vcpus_borrow();
        ram_reset_vcpus_begin_reset();
        load.vcpus_borrowed = true;
        ram_reset_keep_devices(load.bs, &load.sn, ram_reset_map_hold(key));
    }
    load.times.reverted = now();
}

static bool begin_rewind(void)
{
    Shortcut *s = &load.shortcut;

    s->rewind_blocker =
        g_strdup(ram_reset_snapshot_rewind_blocker(load.bs, &load.sn));
    if (s->rewind_blocker) {
        ram_reset_no_baseline("a whole load has begun, and has not succeeded");
        return false;
    }
    ram_reset_rewind();
    s->rewound = true;
    s->ram_end = ram_reset_baseline_use();
    return true;
}

/* True if a reset has begun, which goes on if the template cannot be read */
static bool begin_template(void)
{
    Shortcut *s = &load.shortcut;

    s->identity = ram_reset_template_identity(load.bs, &load.sn);
    if (!s->identity ||
        !ram_reset_template_find(s->identity, &ram_reset_migrate_ignored,
                                 &s->ram_end)) {
        return false;
    }
    s->from_template = ram_reset_template_load(&ram_reset_migrate_ignored);
    if (!s->from_template) {
        s->ram_end = 0;
        ram_reset_template_remove("it cannot be mapped");
    }
    return true;
}

static void begin_whole_load(void)
{
    ram_reset_template_close();
    if (!ram_reset_templates_wanted() || !begin_template()) {
        /* For pages of a mapped-ram snapshot, QEMU calls no hook of ours */
        ram_reset_begin(&ram_reset_migrate_ignored, !migrate_mapped_ram(),
                        load.sn.vm_state_size);
    }
}

void ram_reset_load_begin(void)
{
    ram_reset_devices_reset();
    load.times.was_reset = now();
    ram_reset_vcpus_end_reset();
    ram_reset_tsc_kvm_begin();
    ram_reset_renew_vmgenid();
    if (!ram_reset_rewind_wanted() || !begin_rewind()) {
        begin_whole_load();
    }
    load.times.zeroed = now();
}

void ram_reset_do_load_zeros(QEMUFile *f, ram_addr_t addr)
{
    if (load.active) {
        ram_reset_take_zeros(f, load.bs, addr);
    }
}

static void give_up_shortcut(void)
{
    if (load.shortcut.rewound) {
        load.shortcut.rewind_blocker = g_strdup("the VM state has changed");
    }
    load.shortcut.rewound = load.shortcut.from_template = false;
    load.shortcut.ram_end = 0;
    ram_reset_kept_forget();
    ram_reset_map_release();
    ram_reset_code_release(false, false);
    ram_reset_template_close();
}

/*
 * QEMU loads the first section in any case: after it comes what devices want
 * to have loaded before RAM.
 */
bool ram_reset_load_skip(QEMUFile *f)
{
    Shortcut *s = &load.shortcut;
    bool mapped = migrate_mapped_ram() && ram_reset_enabled();

    if (!load.active || (!ram_reset_rewind_wanted() &&
                         !ram_reset_templates_wanted() &&
                         !ram_reset_verify_wanted() && !mapped)) {
        return false;
    }
    ram_sections_enter(&load.sections, f);
    if (load.sections.count == 1) {
        if (mapped) {
            ram_sections_note_first(&load.sections);
        }
        return false;
    }
    if (!s->ram_end) {
        ram_sections_note_start(&load.sections, load.bs);
        return false;
    }
    s->skipped = load.sections.count == 2 &&
                 ram_sections_skip(&load.sections, s->ram_end);
    if (load.sections.count == 2 && !s->skipped) {
        give_up_shortcut();
    }
    return s->skipped;
}

void ram_reset_load_section(uint8_t type)
{
    load.sections.last = type == QEMU_VM_SECTION_END;
}

/* RAM has just become what the snapshot has, other than by a rewind */
static void make_template_and_baseline(void)
{
    Shortcut *s = &load.shortcut;
    int64_t ram_end = s->from_template ? s->ram_end : load.sections.end;

    if (!s->from_template && s->identity && ram_end > 0) {
        ram_reset_template_make(s->identity, ram_end, true,
                                &ram_reset_migrate_ignored);
    }
    if (ram_reset_rewind_wanted()) {
        ram_reset_baseline_of_load(load.bs, &load.sn, ram_end);
    }
}

static void complete_zeroing(void)
{
    int64_t before = now();

    ram_reset_complete_zeroing();
    load.times.completing = now() - before;
    load.verdict.ram_ended = true;
}

void ram_reset_load_ram_done(int ret)
{
    Verdict *v = &load.verdict;
    bool last_section;

    if (!load.active) {
        return;
    }
    last_section = load.sections.last || load.shortcut.skipped;
    load.sections.last = load.shortcut.skipped = false;
    if (!load.shortcut.ram_end) {
        ram_sections_note_end(&load.sections);
    }
    /* QEMU has not made zero what mapped-ram snapshots do not store */
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
    if (last_section && !load.shortcut.rewound) {
        make_template_and_baseline();
    }
    load.times.ram_loaded = load.times.ram_verified = now();
    if (last_section && ram_reset_verify_wanted() && !v->err) {
        v->verified = ram_reset_check_content(load.bs, &v->err);
        load.times.ram_verified = now();
    }
}

/* @ret: as of ram_reset_load_end(); false with @errp set only if it is >= 0 */
static bool is_what_the_snapshot_has(int ret, Error **errp)
{
    int64_t ram_end = load.shortcut.ram_end ?: load.sections.end;
    Verdict *v = &load.verdict;

    if (ret < 0) {
        return true;
    }
    if (ret > 0) {
        error_setg(errp, "the VM state asks QEMU to end the load");
    } else if (v->err) {
        if (load.shortcut.from_template || load.shortcut.rewound) {
            ram_reset_template_remove("RAM that was taken from it is not what "
                                      "the snapshot has");
        }
        error_propagate(errp, g_steal_pointer(&v->err));
    } else if (!v->ram_ended && ram_reset_enabled()) {
        error_setg(errp, "the VM state has no end of RAM, devices have been "
                   "loaded before it was what the snapshot has");
    } else if (!v->verified && ram_reset_verify_wanted()) {
        error_setg(errp, "RAM cannot be verified: it was switched on in the "
                   "middle of the load");
    } else {
        /* Where devices begin in a mapped-ram snapshot is not known */
        return !ram_reset_verify_wanted() || migrate_mapped_ram() ||
               ram_reset_check_devices(load.bs, &load.sn, ram_end, errp);
    }
    return false;
}

static RamResetLoadInfo *finish(bool success)
{
    Shortcut *s = &load.shortcut;
    RamResetLoadInfo *info = g_new0(RamResetLoadInfo, 1);

    info->tag = g_strdup(load.sn.name);
    info->success = success;
    info->rewound = s->rewound;
    info->blocker = g_steal_pointer(&s->rewind_blocker);
    info->q_template = s->from_template ? ram_reset_template_path() : NULL;
    info->blocks = ram_reset_finish(success);
    info->phases = ram_reset_query_phases(&load.times);
    return info;
}

static void note_failure(void)
{
    if (!load.changed) {
        return;
    }
    ram_reset_set_part(load.sn.name);
    ram_reset_kept_forget();
    if (load.times.was_reset) {
        ram_reset_no_baseline("the last load has failed");
        ram_reset_template_close();
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
    ram_reset_map_release();
    ram_reset_ticks_go_back();
    ram_reset_slots_change(false);
    load.times.end = now();
    ok = is_what_the_snapshot_has(ret, errp);
    load.times.verified = ram_reset_verify_wanted() ? now() : 0;
    ram_reset_code_release(ok && !ret && load.shortcut.rewound, ok && !ret);
    info = finish(ok && !ret);
    info->devices_kept = ram_reset_devices_loaded(load.bs, &load.sn,
                                                  info->success);
    trace_ram_reset_load_end(info->tag, ret, info->phases->total);
    if (info->success) {
        ram_reset_set_whole();
        if (ram_reset_enabled()) {
            ram_reset_map_keep(ram_reset_snapshot_key(load.bs, &load.sn));
        }
        ram_reset_expire_timers();
    } else {
        note_failure();
    }
    ram_reset_count_load(info);

    error_free(load.verdict.err);
    g_free(load.shortcut.identity);
    g_array_unref(load.disks);
    memset(&load, 0, sizeof(load));
    return ok;
}
