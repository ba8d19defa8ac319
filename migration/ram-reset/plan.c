/*
 * The plan of a load: rewind, template or whole
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qapi/error.h"
#include "system/ram-reset-load.h"
#include "system/ram-reset-rewind.h"
#include "system/ram-reset-template.h"
#include "system/runstate.h"
#include "migration/misc.h"
#include "migration/options.h"
#include "migration/ram-reset/baseline.h"
#include "migration/ram-reset/devices.h"
#include "migration/ram-reset/plan.h"

static void plan_to_load(LoadPlan *p, BlockDriverState *bs)
{
    if (p->snapshot->vmstate) {
        p->way = LOAD_COPY;
        p->ram_end = p->snapshot->ram_end;
        return;
    }
    p->identity = ram_reset_template_identity(p->snapshot, bs);
    p->way = p->identity ? LOAD_TEMPLATE : LOAD_WHOLE;
}

void load_plan_decide(LoadPlan *p, RamResetSnapshot *s, BlockDriverState *bs)
{
    p->snapshot = s;
    if (ram_reset_rewind_wanted()) {
        p->blocker =
            ram_reset_blocker_copy(ram_reset_snapshot_rewind_blocker(s));
        if (!p->blocker) {
            p->way = LOAD_REWIND;
            p->ram_end = s->ram_end;
            return;
        }
        ram_reset_lose_position(RAM_RESET_BLOCKER_LOAD_INCOMPLETE);
    }
    plan_to_load(p, bs);
}

void load_plan_freeze(LoadPlan *p)
{
    bool frozen = ram_reset_map_freeze(p->snapshot->map);

    if (p->way == LOAD_REWIND) {
        p->unchanged = ram_reset_leave_devices(p->snapshot, frozen);
    }
}

static void load_all_devices(LoadPlan *p)
{
    /* The open file shares the list of skipped ranges */
    vmstate_cache_clear_skips(&p->snapshot->cache);
    p->unchanged = 0;
}

void load_plan_check(LoadPlan *p, BlockDriverState *bs)
{
    bool all_are_here = ram_reset_devices_were_reset();
    g_autoptr(RamResetBlocker) blocker = NULL;

    if (p->way != LOAD_REWIND) {
        return;
    }
    blocker =
        ram_reset_blocker_copy(ram_reset_snapshot_rewind_blocker(p->snapshot));
    if (!blocker && all_are_here) {
        return;
    }
    /* With all devices, the load fails if the VM state has an unplugged one */
    load_all_devices(p);
    qemu_system_reset(SHUTDOWN_CAUSE_SNAPSHOT_LOAD);
    if (!blocker) {
        blocker = ram_reset_blocker_copy(
            ram_reset_snapshot_rewind_blocker(p->snapshot));
    }
    if (blocker) {
        load_plan_give_up(p, blocker);
        plan_to_load(p, bs);
    }
}

/* Returns whether a RAM reset has begun, which a bad template does not end */
static bool begin_template(LoadPlan *p)
{
    if (!ram_reset_template_find(p->identity, &p->ram_end)) {
        p->way = LOAD_WHOLE;
        return false;
    }
    if (!ram_reset_template_load()) {
        p->way = LOAD_WHOLE;
        p->ram_end = 0;
        ram_reset_template_remove("it cannot be mapped");
    }
    return true;
}

void load_plan_begin_ram(LoadPlan *p, Error **errp)
{
    if (p->way == LOAD_REWIND) {
        if (p->snapshot != ram_reset_snapshot_current()) {
            ram_reset_template_close();
        }
        if (ram_reset_rewind(p->snapshot->point, errp)) {
            ram_reset_note_rewind(p->snapshot);
        }
        return;
    }
    ram_reset_template_close();
    if (p->way == LOAD_COPY && ram_reset_point_fits(p->snapshot->point)) {
        ram_reset_copy_point(p->snapshot->point, errp);
        return;
    }
    if (p->way == LOAD_COPY) {
        error_setg(errp, "the system reset has removed RAM of snapshot '%s', "
                   "which is in memory", p->snapshot->info.name);
    }
    if (p->way != LOAD_TEMPLATE || !begin_template(p)) {
        /* QEMU calls no hook for the pages of a mapped-ram snapshot */
        ram_reset_begin(!migrate_mapped_ram(), p->snapshot->info.vm_state_size);
    }
}

void load_plan_give_up(LoadPlan *p, const RamResetBlocker *why)
{
    if (p->way == LOAD_REWIND) {
        p->blocker = ram_reset_blocker_copy(why);
    }
    p->way = LOAD_WHOLE;
    p->ram_end = 0;
    load_all_devices(p);
    vmstate_cache_drop(&p->snapshot->cache);
    ram_reset_map_thaw();
    ram_reset_code_finish(false, false);
    ram_reset_template_close();
}

void load_plan_clear(LoadPlan *p)
{
    qapi_free_RamResetBlocker(p->blocker);
    g_free(p->identity);
    *p = (LoadPlan) { 0 };
}
