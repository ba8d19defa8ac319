/*
 * RAM reset: the context in which snapshot jobs do their work
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/job.h"
#include "qemu/main-loop.h"
#include "qemu/notify.h"
#include "system/runstate.h"
#include "migration/ram-reset.h"

static bool is_any_left(void)
{
    JOB_LOCK_GUARD();

    for (Job *job = job_next_locked(NULL); job; job = job_next_locked(job)) {
        JobType type = job_type(job);

        if ((type == JOB_TYPE_SNAPSHOT_LOAD || type == JOB_TYPE_SNAPSHOT_SAVE ||
             type == JOB_TYPE_SNAPSHOT_DELETE) &&
            !job_is_completed_locked(job)) {
            return true;
        }
    }
    return false;
}

/* QEMU waits for jobs when it ends, but polls the main context only */
static void finish_jobs(Notifier *n, void *opaque)
{
    while (is_any_left()) {
        aio_poll(iohandler_get_aio_context(), false);
        aio_poll(qemu_get_aio_context(), false);
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
