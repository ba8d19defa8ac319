/*
 * Monitors on TCP without Nagle's algorithm
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "chardev/char-socket.h"
#include "qemu/lockable.h"
#include "monitor/monitor-internal.h"
#include "system/ram-reset-load.h"
#include "migration/ram-reset/monitors.h"

/* The lock keeps the monitor's thread from dropping the connection */
static void disable_delay(SocketChardev *s)
{
    QEMU_LOCK_GUARD(&CHARDEV(s)->chr_write_lock);

    s->do_nodelay = true;       /* for later clients */
    if (s->ioc) {
        qio_channel_set_delay(s->ioc, false);
    }
}

void ram_reset_monitors_no_delay(void)
{
    Monitor *mon;

    if (!ram_reset_enabled()) {
        return;
    }
    QEMU_LOCK_GUARD(&monitor_lock);
    QTAILQ_FOREACH(mon, &mon_list, entry) {
        Object *chr = OBJECT(qemu_chr_fe_get_driver(&mon->chr));
        SocketChardev *s = chr ? (SocketChardev *)
            object_dynamic_cast(chr, TYPE_CHARDEV_SOCKET) : NULL;

        if (s && !s->do_nodelay) {
            disable_delay(s);
        }
    }
}
