/*
 * The job that forks a running machine
 *
 * A migration writes RAM and devices to a file while the guest runs.  Behind
 * the last page it waits, with the guest paused: there each disk gets its
 * overlay.  Then it ends, and the machine goes on as it was.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qapi/clone-visitor.h"
#include "qapi/error.h"
#include "qapi/qapi-commands-migration.h"
#include "qapi/qapi-commands-ram-reset.h"
#include "qapi/qapi-visit-ram-reset.h"
#include "qemu/error-report.h"
#include "qemu/job.h"
#include "qemu/notify.h"
#include "qemu/timer.h"
#include "system/ram-reset-compat.h"
#include "system/ram-reset-dirty-tcg.h"
#include "system/runstate.h"
#include "migration/global_state.h"
#include "migration/migration.h"
#include "migration/misc.h"
#include "migration/ram-reset.h"
#include "migration/ram-reset/fork-disks.h"
#include "migration/ram-reset/fork-settings.h"
#include "migration/ram-reset/job-context.h"
#include "system/ram-reset/trace.h"

#define POLL_NS (1 * SCALE_MS)

typedef struct ForkJob ForkJob;
typedef void ForkStep(ForkJob *job);

struct ForkJob {
    Job common;
    char *file, *part;          /* @part becomes @file when all is well */
    RamResetForkDiskList *disks;

    ForkSettings before;        /* the user's */
    bool set;                   /* the settings are the job's */
    bool migrating;             /* a migration of the job has begun, ... */
    bool ended, completed;      /* ... has ended, and how */
    RunState old;               /* of the machine, if it has completed */
    bool frozen;                /* disks have their overlays */
    int64_t stopped;            /* ns */

    ForkStep *step;
    Error *err;
};

/* Protected by the BQL; there is one at a time */
static ForkJob *fork_current;

/* The first one that ends after the job's has begun is the job's */
static int fork_migration_event(NotifierWithReturn *notifier,
                                MigrationEvent *event, Error **errp)
{
    ForkJob *f = fork_current;

    if (f && f->migrating && !f->ended && event->type != MIG_EVENT_SETUP) {
        f->ended = true;
        f->completed = event->type == MIG_EVENT_PRECOPY_DONE;
        f->old = migrate_get_current()->vm_old_state;
    }
    return 0;
}

static void fork_step(void *opaque)
{
    ForkJob *f = opaque;

    f->step(f);
}

/* A nested poll for I/O must not run it */
static void coroutine_fn fork_do(ForkJob *f, ForkStep *step)
{
    f->step = step;
    ram_reset_job_call(fork_step, f);
}

static void fork_remove_part(const ForkJob *f)
{
    struct stat st;

    if (!lstat(f->part, &st) && S_ISREG(st.st_mode)) {
        unlink(f->part);
    }
}

static void fork_begin(ForkJob *f)
{
    g_autofree char *uri = g_strdup_printf("file:%s", f->part);

    if (!fork_settings_are_able(&f->err) ||
        !fork_disks_are_able(f->disks, &f->err)) {
        return;
    }
    f->before = fork_settings_get();
    f->set = true;
    ram_reset_watch_dirty_tcg(true);
    if (!fork_settings_set(&f->err)) {
        return;
    }
    fork_remove_part(f);        /* of a QEMU that was killed */
    f->migrating = true;        /* the migration may fail within the call */
    qmp_migrate(uri, false, NULL, false, false, false, false, &f->err);
    f->migrating = !f->err;
}

static bool fork_waits(const ForkJob *f)
{
    return !f->ended && qatomic_read(&migrate_get_current()->state) ==
                        MIGRATION_STATUS_PRE_SWITCHOVER;
}

/* A machine that comes in cannot be in such a state: a child is paused */
static void fork_store_state(MigrationState *s)
{
    if (s->vm_old_state != RUN_STATE_DEBUG &&
        s->vm_old_state != RUN_STATE_RESTORE_VM) {
        return;
    }
    runstate_set(RUN_STATE_PAUSED);
    global_state_store();
    runstate_set(RUN_STATE_FINISH_MIGRATE);
    if (s->vm_old_state == RUN_STATE_DEBUG) {
        s->vm_old_state = RUN_STATE_PAUSED;     /* no way leads back to DEBUG */
    }
}

/* The migration waits, with the guest paused and I/O drained */
static void fork_freeze(ForkJob *f)
{
    MigrationState *s = migrate_get_current();

    if (!fork_waits(f)) {
        return;
    }
    f->stopped = get_clock();
    if (!runstate_check(RUN_STATE_FINISH_MIGRATE)) {
        error_setg(&f->err, "the migration has not paused the guest");
        migration_cancel();
        return;
    }
    fork_store_state(s);
    /* A medium may have been inserted since */
    if (fork_disks_are_able(f->disks, &f->err) &&
        fork_disks_freeze(f->disks, &f->err)) {
        f->frozen = true;
        qmp_migrate_continue(MIGRATION_STATUS_PRE_SWITCHOVER, &f->err);
    }
    if (f->err) {
        migration_cancel();
    }
}

static void fork_cancel(ForkJob *f)
{
    if (!f->ended) {
        migration_cancel();
    }
}

/*
 * As it was when the migration stopped it.  A reset since has left PRELAUNCH;
 * whatever else it is, somebody wants it so.
 */
static void fork_go_on(ForkJob *f, Error **errp)
{
    if ((!runstate_check(RUN_STATE_POSTMIGRATE) &&
         !runstate_check(RUN_STATE_PRELAUNCH)) ||
        !migration_block_activate(errp)) {
        return;
    }
    if (runstate_check(RUN_STATE_POSTMIGRATE)) {
        /* Only from this one can all others follow */
        runstate_set(RUN_STATE_FINISH_MIGRATE);
    }
    if (runstate_is_live(f->old)) {
        vm_start();
    } else if (runstate_check(RUN_STATE_FINISH_MIGRATE)) {
        runstate_set(f->old);
    }
}

/* An error of a migration that is cancelled is one of its file */
static Error *fork_migration_error(ForkJob *f)
{
    MigrationState *s = migrate_get_current();
    bool cancelled = job_is_cancelled(&f->common) ||
                     s->state == MIGRATION_STATUS_CANCELLED;
    Error *err = NULL;

    QEMU_LOCK_GUARD(&s->error_mutex);
    if (s->error && !cancelled) {
        return error_copy(s->error);
    }
    error_setg(&err, f->completed ? "somebody else has continued the migration"
                                  : "the migration has been cancelled");
    return err;
}

static void fork_finish(ForkJob *f)
{
    Error *err = NULL;

    if (f->completed) {
        fork_go_on(f, &err);
        trace_ram_reset_fork(f->file, get_clock() - f->stopped);
    }
    if (err) {
        error_prepend(&err, "the machine cannot go on: ");
    } else if (!f->completed || !f->frozen) {
        err = fork_migration_error(f);
    } else if (!f->err && rename(f->part, f->file) < 0) {
        error_setg_errno(&err, errno, "'%s' cannot become '%s'", f->part,
                         f->file);
    }
    f->err = f->err ?: g_steal_pointer(&err);
    error_free(err);
}

static void fork_end(ForkJob *f)
{
    Error *err = NULL;

    if (f->set) {
        ram_reset_watch_dirty_tcg(false);
    }
    if (f->migrating) {
        fork_finish(f);
    }
    if (f->set && f->err) {
        fork_remove_part(f);
    }
    if (f->set && !fork_settings_set_back(&f->before, &err)) {
        error_reportf_err(err, "After a fork, migration settings are not "
                          "as they were: ");
    }
    fork_current = NULL;
}

static int coroutine_fn fork_run(Job *job, Error **errp)
{
    ForkJob *f = container_of(job, ForkJob, common);
    bool cancelled = false;

    fork_do(f, fork_begin);
    /* One that is cancelled early ends without an event */
    while (f->migrating && !f->ended && !ram_reset_migration_is_over()) {
        if (job_is_cancelled(job) && !f->frozen && !cancelled) {
            cancelled = true;
            fork_do(f, fork_cancel);
        } else if (!f->frozen && !f->err && !cancelled && fork_waits(f)) {
            fork_do(f, fork_freeze);
        }
        /* job_sleep_ns() does not sleep in a cancelled job */
        qemu_co_sleep_ns(QEMU_CLOCK_REALTIME, POLL_NS);
    }
    fork_do(f, fork_end);
    if (f->err) {
        error_prepend(&f->err, "The machine cannot be forked: ");
        error_propagate(errp, g_steal_pointer(&f->err));
        return -EIO;
    }
    return 0;
}

static void fork_job_free(Job *job)
{
    ForkJob *f = container_of(job, ForkJob, common);

    g_free(f->file);
    g_free(f->part);
    qapi_free_RamResetForkDiskList(f->disks);
}

/* When disks have their overlays, the fork is all but made */
static bool fork_job_cancel(Job *job, bool force)
{
    ForkJob *f = container_of(job, ForkJob, common);

    return f == fork_current && !f->frozen;
}

static const JobDriver fork_job_driver = {
    .instance_size = sizeof(ForkJob),
    .job_type = JOB_TYPE_SNAPSHOT_SAVE,
    .run = fork_run,
    .cancel = fork_job_cancel,
    .free = fork_job_free,
};

/* At QEMU's end, before others wait for the job */
static void fork_shutdown(Notifier *n, void *opaque)
{
    JOB_LOCK_GUARD();

    if (fork_current) {
        job_cancel_locked(&fork_current->common, true);
    }
}

static void fork_watch(void)
{
    static Notifier shutdown = { .notify = fork_shutdown };
    static NotifierWithReturn migration[MIG_MODE__MAX];

    /* The last notifier that was added is called first */
    ram_reset_job_context();
    if (shutdown.node.le_prev) {
        return;
    }
    qemu_register_shutdown_notifier(&shutdown);
    /* The user may set another mode meanwhile */
    for (MigMode mode = 0; mode < MIG_MODE__MAX; mode++) {
        migration_add_notifier_mode(&migration[mode], fork_migration_event,
                                    mode);
    }
}

void qmp_ram_reset_fork(const char *job_id, const char *file,
                        RamResetForkDiskList *disks, Error **errp)
{
    ForkJob *f;

    if (strstr(file, ",offset=")) {
        error_setg(errp, "'file' must not contain ',offset='");
        return;
    }
    if (fork_current) {
        error_setg(errp, "Job '%s' forks the machine already",
                   fork_current->common.id);
        return;
    }
    if (!ram_reset_vm_is_whole(errp)) {
        return;
    }
    fork_watch();
    f = job_create(job_id, &fork_job_driver, NULL, qemu_get_aio_context(),
                   JOB_MANUAL_DISMISS, NULL, NULL, errp);
    if (f) {
        fork_current = f;
        f->file = g_strdup(file);
        f->part = g_strdup_printf("%s.part", file);
        f->disks = QAPI_CLONE(RamResetForkDiskList, disks);
        job_start(&f->common);
    }
}
