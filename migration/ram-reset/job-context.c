/*
 * The context in which snapshot jobs run
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/job.h"
#include "qemu/main-loop.h"
#include "qemu/notify.h"
#include "system/ram-reset-compat.h"
#include "system/runstate.h"
#include "migration/ram-reset.h"
#include "migration/ram-reset/job-context.h"

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

typedef struct JobCall {
    Coroutine *co;
    RamResetJobFunction *function;
    void *opaque;
} JobCall;

static void job_call_bh(void *opaque)
{
    JobCall *call = opaque;

    call->function(call->opaque);
    aio_co_wake(call->co);
}

void coroutine_fn ram_reset_job_call(RamResetJobFunction *function,
                                     void *opaque)
{
    JobCall call = {
        .co = qemu_coroutine_self(), .function = function, .opaque = opaque,
    };

    aio_bh_schedule_oneshot(ram_reset_job_context(), job_call_bh, &call);
    qemu_coroutine_yield();
}
