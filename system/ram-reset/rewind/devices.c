/*
 * RAM reset: warn of devices that block rewinds when the machine is made
 *
 * The user need not load a snapshot to learn that.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/module.h"
#include "qemu/notify.h"
#include "system/ram-reset-rewind.h"
#include "system/system.h"
#include "system/ram-reset/block/vhost.h"
#include "system/ram-reset/options.h"
#include "system/ram-reset/rewind/tracking.h"

static void devices_check(Notifier *n, void *data)
{
    g_autoptr(RamResetBlocker) why = tracking_blocker();

    if (why) {
        tracking_warn(why);
    }
}

static void devices_options_changed(Notifier *n, void *data)
{
    static Notifier machine_done = { .notify = devices_check };

    if (!data) {
        return;
    }
    ram_reset_watch_vhost();
    if (ram_reset_rewind_wanted() && !machine_done.node.le_prev) {
        qemu_add_machine_init_done_notifier(&machine_done);
    }
}

static void devices_follow_options(void)
{
    static Notifier notifier = { .notify = devices_options_changed };

    ram_reset_add_options_notifier(&notifier);
}

/* Registered before any object exists */
type_init(devices_follow_options)
