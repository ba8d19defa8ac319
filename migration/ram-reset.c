/*
 * RAM reset in the course of loading a snapshot
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qapi/error.h"
#include "qapi/clone-visitor.h"
#include "qapi/qapi-visit-ram-reset.h"
#include "qemu/timer.h"
#include "system/runstate.h"
#include "migration/colo.h"
#include "migration/misc.h"
#include "migration/ram-reset.h"
#include "migration.h"
#include "options.h"
#include "postcopy-ram.h"
#include "qemu-file.h"
#include "ram.h"
#include "savevm.h"
#include "ram-reset-check.h"
#include "ram-reset-zeros.h"
#include "system/ram-reset/trace.h"

/* Protected by the BQL, as all of load_snapshot() is */
static struct {
    bool active;
    char *tag;
    uint64_t state_size;        /* bytes */
    BlockDriverState *bs;
    Error *verify_err;
    bool last_section, settled, verified;
    /* When each phase ended, 0 if it has not */
    int64_t start, checked, reverted, was_reset, zeroed, ram_loaded;
    int64_t settling;           /* how long it took, part of making RAM zero */
} load;

static uint64_t loads, failed_loads;
static RamResetLoadInfo *last_load;

static int64_t now(void)
{
    return qemu_clock_get_ns(QEMU_CLOCK_REALTIME);
}

/* What a load cannot be mixed with */
static bool check_migration(Error **errp)
{
    MigrationStatus incoming = migration_incoming_get_current()->state;
    const char *what = NULL;

    if (runstate_check(RUN_STATE_INMIGRATE) ||
        (incoming != MIGRATION_STATUS_NONE &&
         incoming != MIGRATION_STATUS_COMPLETED)) {
        what = "an incoming migration has not completed";
    } else if (migration_is_running()) {
        what = "a migration is running, wait for its end or cancel it";
    } else if (migrate_multifd()) {
        what = "migration capability 'multifd' is on, set it to off";
    } else if (migrate_postcopy_ram()) {
        what = "migration capability 'postcopy-ram' is on, set it to off";
    } else if (migrate_colo() || migration_incoming_colo_enabled()) {
        what = "COLO is set up (migration capability 'x-colo')";
    }
    if (what) {
        error_setg(errp, "RAM reset cannot serve a snapshot load now, "
                   "nothing has been changed: %s", what);
    }
    return !what;
}

bool ram_reset_load_prepare(BlockDriverState *bs, const QEMUSnapshotInfo *sn,
                            Error **errp)
{
    int64_t start = now();

    if (ram_reset_enabled() &&
        (!check_migration(errp) || !ram_reset_check_layout(bs, sn, errp))) {
        return false;
    }
    load.active = true;
    load.last_section = false;
    load.tag = g_strdup(sn->name);
    load.state_size = sn->vm_state_size;
    load.start = start;
    load.checked = now();
    trace_ram_reset_load_begin(load.tag);
    return true;
}

void ram_reset_load_reverted(void)
{
    load.reverted = now();
}

void ram_reset_load_begin(BlockDriverState *bs)
{
    load.was_reset = now();
    load.bs = bs;
    /* Pages of a mapped-ram snapshot are not records that we are told of */
    ram_reset_begin(migrate_ram_is_ignored, !migrate_mapped_ram(),
                    load.state_size);
    load.zeroed = now();
}

void ram_reset_do_load_page(RAMBlock *rb, ram_addr_t offset, int flags)
{
    RamResetPage what = RAM_RESET_PAGE_WRITE;

    if (flags & RAM_SAVE_FLAG_ZERO) {
        what = RAM_RESET_PAGE_ZERO;
    } else if (flags & RAM_SAVE_FLAG_XBZRLE) {
        what = RAM_RESET_PAGE_CHANGE;
    }
    ram_reset_page_loaded(rb, offset, what);
}

void ram_reset_do_load_zeros(QEMUFile *f, ram_addr_t addr)
{
    if (load.active) {
        ram_reset_take_zeros(f, load.bs, addr);
    }
}

void ram_reset_load_section(uint8_t type)
{
    load.last_section = type == QEMU_VM_SECTION_END;
}

void ram_reset_load_ram_done(int ret)
{
    bool last_section;

    if (!load.active) {
        return;
    }
    last_section = load.last_section;
    load.last_section = false;
    if (last_section || ret) {
        int64_t before = now();

        ram_reset_settle();
        load.settling = now() - before;
        load.settled = true;
    }
    if (ret) {
        return;
    }
    load.ram_loaded = now();
    if (last_section && ram_reset_verify_wanted()) {
        error_free(load.verify_err);
        load.verify_err = NULL;
        load.verified = ram_reset_check_content(load.bs, &load.verify_err);
    }
}

static uint64_t phase(int64_t from, int64_t to)
{
    return from && to ? to - from : 0;
}

bool ram_reset_load_end(int ret, Error **errp)
{
    RamResetLoadInfo *info;
    int64_t end = now();
    bool ok = true;

    if (!load.active) {
        return true;
    }
    if (!ret && load.verify_err) {
        error_propagate(errp, g_steal_pointer(&load.verify_err));
        ok = false;
    } else if (!ret && !load.settled && ram_reset_enabled()) {
        error_setg(errp, "the VM state has no end of RAM, devices have been "
                   "loaded before it was what the snapshot has");
        ok = false;
    } else if (!ret && !load.verified && ram_reset_verify_wanted()) {
        error_setg(errp, "RAM cannot be verified: it was switched on in the "
                   "middle of the load");
        ok = false;
    }

    info = g_new0(RamResetLoadInfo, 1);
    info->tag = g_steal_pointer(&load.tag);
    info->success = ok && !ret;
    info->blocks = ram_reset_finish(info->success);
    info->phases = g_new0(RamResetPhases, 1);
    info->phases->check = phase(load.start, load.checked);
    info->phases->disk_revert = phase(load.checked, load.reverted);
    info->phases->system_reset = phase(load.reverted, load.was_reset);
    info->phases->ram_reset = phase(load.was_reset, load.zeroed) +
                              load.settling;
    info->phases->ram_load = phase(load.zeroed + load.settling,
                                   load.ram_loaded);
    info->phases->device_load = phase(load.ram_loaded, end);
    info->phases->total = end - load.start;
    trace_ram_reset_load_end(info->tag, ret, info->phases->total);

    loads += info->success;
    failed_loads += !info->success;
    qapi_free_RamResetLoadInfo(last_load);
    last_load = info;

    error_free(load.verify_err);
    memset(&load, 0, sizeof(load));
    return ok;
}

void ram_reset_query_loads(RamResetInfo *info)
{
    info->loads = loads;
    info->failed_loads = failed_loads;
    if (last_load) {
        info->last_load = QAPI_CLONE(RamResetLoadInfo, last_load);
    }
}
