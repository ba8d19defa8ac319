/*
 * The context in which snapshot jobs run
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/job.h"
#include "qemu/main-loop.h"
#include "qemu/notify.h"
#include "system/runstate.h"
#include "migration/ram-reset.h"

static bool has_snapshot_job(void)
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

/* At its end, QEMU waits for jobs, but polls only the main context */
static void complete_snapshot_jobs(Notifier *n, void *opaque)
{
    while (has_snapshot_job()) {
        aio_poll(iohandler_get_aio_context(), false);
        aio_poll(qemu_get_aio_context(), false);
        /* A fork waits for the thread of its migration */
        bql_unlock();
        g_usleep(1000);
        bql_lock();
    }
}

AioContext *ram_reset_job_context(void)
{
    static Notifier shutdown = { .notify = complete_snapshot_jobs };
    static bool watching;

    if (!watching) {
        watching = true;
        qemu_register_shutdown_notifier(&shutdown);
    }
    return iohandler_get_aio_context();
}
