/*
 * Whether the VM is whole, or has a part of a snapshot
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qapi/error.h"
#include "qemu/error-report.h"
#include "system/reset.h"
#include "system/runstate.h"
#include "migration/ram-reset.h"
#include "migration/ram-reset/partial-load.h"

static char *part_of;           /* tag of a snapshot, NULL if whole; BQL */

bool ram_reset_vm_is_whole(Error **errp)
{
    if (part_of) {
        error_setg(errp, "The VM has a part of snapshot '%s', whose load has "
                   "failed; load a snapshot, or reset the VM", part_of);
    }
    return !part_of;
}

void ram_reset_set_error_of_cont(Error **errp)
{
    if (ram_reset_vm_is_whole(errp)) {
        error_setg(errp, "Resetting the Virtual Machine is required");
    }
}

bool ram_reset_may_migrate(Error **errp)
{
    if (!ram_reset_vm_is_whole(errp)) {
        return false;
    }
    if (runstate_check(RUN_STATE_RESTORE_VM)) {
        /* there is no way from it to RUN_STATE_FINISH_MIGRATE */
        error_setg(errp, "The VM has been stopped to load a snapshot, and has "
                   "not been continued; continue it, then migrate it");
        return false;
    }
    return true;
}

void ram_reset_set_whole(void)
{
    g_clear_pointer(&part_of, g_free);
}

static void system_has_been_reset(void *opaque)
{
    ram_reset_set_whole();
}

/*
 * Monitors and debuggers ask before they let the VM run; replay-seek does not.
 * Last in the order of these handlers, so that the others have the start behind
 * them when they are told of the stop.  vCPUs are resumed after all of them.
 */
static void do_not_run_part(void *opaque, bool running, RunState state)
{
    Error *err = NULL;

    if (running && !ram_reset_vm_is_whole(&err)) {
        warn_report_err(err);
        vm_stop(RUN_STATE_PAUSED);      /* of which a debugger is told */
    }
}

void ram_reset_set_part(const char *tag)
{
    static bool watching;

    if (!watching) {
        watching = true;
        qemu_register_reset_nosnapshotload(system_has_been_reset, NULL);
        qemu_add_vm_change_state_handler_prio(do_not_run_part, NULL, INT_MAX);
    }
    g_free(part_of);
    part_of = g_strdup(tag);
}
