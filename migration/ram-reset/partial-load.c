/*
 * Whether the VM is whole, or has a partial load
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

static char *failed_tag;           /* of a partial load, else NULL; BQL */

bool ram_reset_vm_is_whole(Error **errp)
{
    if (failed_tag) {
        error_setg(errp, "The VM has a partial load of snapshot '%s', which "
                   "failed; load a snapshot, or reset the VM", failed_tag);
    }
    return !failed_tag;
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
        /* A machine that comes in has no transition to it */
        error_setg(errp, "The VM has been stopped to load a snapshot, and has "
                   "not been continued; continue it, then migrate it");
        return false;
    }
    return true;
}

void ram_reset_partial_load_clear(void)
{
    g_clear_pointer(&failed_tag, g_free);
}

static void system_has_been_reset(void *opaque)
{
    ram_reset_partial_load_clear();
}

/*
 * Monitors and debuggers check the VM before they continue it; replay-seek does
 * not.  This handler is the last one, so each other handler sees the start and
 * then the stop.  vCPUs are resumed after all handlers.
 */
static void stop_partial_load(void *opaque, bool running, RunState state)
{
    Error *err = NULL;

    if (running && !ram_reset_vm_is_whole(&err)) {
        warn_report_err(err);
        vm_stop(RUN_STATE_PAUSED);      /* notifies a debugger, too */
    }
}

void ram_reset_partial_load_set(const char *tag)
{
    static bool watching;

    if (!watching) {
        watching = true;
        qemu_register_reset_nosnapshotload(system_has_been_reset, NULL);
        qemu_add_vm_change_state_handler_prio(stop_partial_load, NULL, INT_MAX);
    }
    g_free(failed_tag);
    failed_tag = g_strdup(tag);
}
