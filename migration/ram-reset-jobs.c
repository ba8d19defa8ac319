/*
 * RAM reset: where snapshot jobs do their work
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/main-loop.h"
#include "qemu/notify.h"
#include "system/system.h"
#include "migration/ram-reset.h"

/* Who waits for jobs when QEMU ends polls the main context only */
static void finish_jobs(Notifier *n, void *opaque)
{
    while (aio_poll(iohandler_get_aio_context(), false)) {
        /* until nothing is left to do */
    }
}

AioContext *ram_reset_job_context(void)
{
    static Notifier shutdown = { .notify = finish_jobs };
    static bool watching;

    if (!watching) {
        watching = true;
        qemu_register_shutdown_notifier(&shutdown);
    }
    return iohandler_get_aio_context();
}
