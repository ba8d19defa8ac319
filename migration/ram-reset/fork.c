/*
 * The job that forks a running machine
 *
 * A migration writes RAM and devices to a file while the guest runs.  Behind
 * the last page it waits, with the guest paused: there each disk gets its
 * overlay.  Then it ends, and the guest goes on.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qapi/clone-visitor.h"
#include "qapi/error.h"
#include "qapi/qapi-commands-migration.h"
#include "qapi/qapi-commands-misc.h"
#include "qapi/qapi-commands-ram-reset.h"
#include "qapi/qapi-commands-transaction.h"
#include "qapi/qapi-visit-ram-reset.h"
#include "qemu/coroutine.h"
#include "qemu/error-report.h"
#include "qemu/job.h"
#include "qemu/timer.h"
#include "block/block.h"
#include "system/block-backend.h"
#include "system/runstate.h"
#include "migration/migration.h"
#include "migration/options.h"
#include "migration/ram-reset.h"
#include "system/ram-reset/trace.h"

#define POLL_NS         (1 * SCALE_MS)
/* The guest stands while pages are written that it has changed lately */
#define DOWNTIME_MS     10

typedef struct ForkJob ForkJob;
typedef void ForkStep(ForkJob *job);

struct ForkJob {
    Job common;
    char *file;
    RamResetForkDiskList *disks;

    bool begun, frozen;
    bool was_running;
    bool mapped_ram, pause;     /* capabilities before */
    uint64_t max_bandwidth, downtime;
    int64_t stopped;            /* ns */

    Coroutine *co;
    ForkStep *step;
    Error *err;
};

static void fork_step_bh(void *opaque)
{
    ForkJob *f = opaque;

    f->step(f);
    aio_co_wake(f->co);
}

static bool coroutine_fn fork_do(ForkJob *f, ForkStep *step)
{
    f->step = step;
    f->co = qemu_coroutine_self();
    aio_bh_schedule_oneshot(ram_reset_job_context(), fork_step_bh, f);
    qemu_coroutine_yield();
    return !f->err;
}

static bool fork_set_capabilities(bool mapped_ram, bool pause, Error **errp)
{
    MigrationCapabilityStatus states[] = {
        { MIGRATION_CAPABILITY_MAPPED_RAM, mapped_ram },
        { MIGRATION_CAPABILITY_PAUSE_BEFORE_SWITCHOVER, pause },
    };
    MigrationCapabilityStatusList second = { NULL, &states[1] };
    MigrationCapabilityStatusList first = { &second, &states[0] };
    ERRP_GUARD();

    qmp_migrate_set_capabilities(&first, errp);
    return !*errp;
}

static bool fork_set_parameters(uint64_t max_bandwidth, uint64_t downtime,
                                Error **errp)
{
    MigrateSetParameters p = {
        .has_max_bandwidth = true, .max_bandwidth = max_bandwidth,
        .has_downtime_limit = true, .downtime_limit = downtime,
    };
    ERRP_GUARD();

    qmp_migrate_set_parameters(&p, errp);
    return !*errp;
}

static bool fork_has_disk(const ForkJob *f, const char *node)
{
    for (RamResetForkDiskList *l = f->disks; l; l = l->next) {
        if (!strcmp(l->value->node, node)) {
            return true;
        }
    }
    return false;
}

/* A disk without an overlay would be that of two machines */
static bool fork_check_disks(const ForkJob *f, Error **errp)
{
    BdrvNextIterator it;

    GRAPH_RDLOCK_GUARD_MAINLOOP();
    for (BlockDriverState *bs = bdrv_first(&it); bs; bs = bdrv_next(&it)) {
        if (bdrv_has_blk(bs) && bdrv_is_inserted(bs) &&
            !bdrv_is_read_only(bs) &&
            !fork_has_disk(f, bdrv_get_node_name(bs))) {
            error_setg(errp, "Disk '%s' has no overlay in 'disks'",
                       bdrv_get_device_or_node_name(bs));
            bdrv_next_cleanup(&it);
            return false;
        }
    }
    for (RamResetForkDiskList *l = f->disks; l; l = l->next) {
        const char *names[] = { l->value->node, l->value->overlay };

        for (unsigned i = 0; i < ARRAY_SIZE(names); i++) {
            if (!bdrv_find_node(names[i])) {
                error_setg(errp, "There is no block node '%s'", names[i]);
                return false;
            }
        }
    }
    return true;
}

static void fork_begin(ForkJob *f)
{
    const MigrationParameters *p = &migrate_get_current()->parameters;
    g_autofree char *uri = g_strdup_printf("file:%s", f->file);

    f->mapped_ram = migrate_mapped_ram();
    f->pause = migrate_pause_before_switchover();
    f->max_bandwidth = p->max_bandwidth;
    f->downtime = p->downtime_limit;
    f->was_running = runstate_is_running();
    if (!fork_check_disks(f, &f->err) ||
        !fork_set_capabilities(true, true, &f->err)) {
        return;
    }
    f->begun = true;
    if (fork_set_parameters(SIZE_MAX, DOWNTIME_MS, &f->err)) {
        qmp_migrate(uri, false, NULL, false, false, false, false, &f->err);
    }
}

static TransactionActionList *fork_actions(const ForkJob *f)
{
    TransactionActionList *actions = NULL;

    for (RamResetForkDiskList *l = f->disks; l; l = l->next) {
        TransactionAction *a = g_new0(TransactionAction, 1);
        BlockdevSnapshot *data = g_new0(BlockdevSnapshot, 1);

        data->node = g_strdup(l->value->node);
        data->overlay = g_strdup(l->value->overlay);
        a->type = TRANSACTION_ACTION_KIND_BLOCKDEV_SNAPSHOT;
        a->u.blockdev_snapshot.data = data;
        QAPI_LIST_PREPEND(actions, a);
    }
    return actions;
}

/* The migration waits, with the guest paused and I/O drained */
static void fork_freeze(ForkJob *f)
{
    g_autoptr(TransactionActionList) actions = fork_actions(f);

    f->stopped = get_clock();
    if (actions) {
        qmp_transaction(actions, NULL, &f->err);
    }
    if (!f->err) {
        f->frozen = true;
        qmp_migrate_continue(MIGRATION_STATUS_PRE_SWITCHOVER, &f->err);
    }
    if (f->err) {
        migration_cancel();
    }
}

static void fork_cancel(ForkJob *f)
{
    migration_cancel();
}

static void fork_restore(ForkJob *f)
{
    Error *err = NULL;

    if (f->begun &&
        (!fork_set_capabilities(f->mapped_ram, f->pause, &err) ||
         !fork_set_parameters(f->max_bandwidth, f->downtime, &err))) {
        error_reportf_err(err, "After a fork, migration settings are not "
                          "what they were: ");
    }
}

/* A machine that was paused stays so */
static void fork_resume(ForkJob *f)
{
    if (f->was_running && runstate_check(RUN_STATE_POSTMIGRATE)) {
        qmp_cont(&f->err);
    }
    trace_ram_reset_fork(f->file, get_clock() - f->stopped);
    fork_restore(f);
}

static void fork_fail(ForkJob *f)
{
    MigrationState *s = migrate_get_current();

    if (!f->err) {
        QEMU_LOCK_GUARD(&s->error_mutex);
        if (s->error) {
            f->err = error_copy(s->error);
        } else {
            error_setg(&f->err, "the migration has been cancelled");
        }
    }
    fork_restore(f);
    unlink(f->file);
}

/* Waits for the end of the migration; returns whether it has completed */
static bool coroutine_fn fork_migrate(ForkJob *f)
{
    MigrationState *s = migrate_get_current();
    bool cancelled = false;

    while (!ram_reset_migration_is_over()) {
        if (job_is_cancelled(&f->common) && !f->frozen && !cancelled) {
            cancelled = true;
            fork_do(f, fork_cancel);
        } else if (!f->frozen && !f->err &&
                   qatomic_read(&s->state) == MIGRATION_STATUS_PRE_SWITCHOVER) {
            fork_do(f, fork_freeze);
        }
        /* job_sleep_ns() does not sleep in a cancelled job */
        qemu_co_sleep_ns(QEMU_CLOCK_REALTIME, POLL_NS);
    }
    return f->frozen && !f->err &&
           qatomic_read(&s->state) == MIGRATION_STATUS_COMPLETED;
}

static int coroutine_fn fork_run(Job *job, Error **errp)
{
    ForkJob *f = container_of(job, ForkJob, common);
    bool ok = fork_do(f, fork_begin);

    if (f->begun && !f->err) {
        ok = fork_migrate(f);
    }
    fork_do(f, ok ? fork_resume : fork_fail);
    if (f->err) {
        error_prepend(&f->err, ok ? "The machine is forked, but cannot go on: "
                                  : "The machine cannot be forked: ");
        error_propagate(errp, g_steal_pointer(&f->err));
        return -EIO;
    }
    return 0;
}

static void fork_job_free(Job *job)
{
    ForkJob *f = container_of(job, ForkJob, common);

    g_free(f->file);
    qapi_free_RamResetForkDiskList(f->disks);
}

static const JobDriver fork_job_driver = {
    .instance_size = sizeof(ForkJob),
    .job_type = JOB_TYPE_SNAPSHOT_SAVE,
    .run = fork_run,
    .free = fork_job_free,
};

void qmp_ram_reset_fork(const char *job_id, const char *file,
                        RamResetForkDiskList *disks, Error **errp)
{
    ForkJob *f;

    if (strstr(file, ",offset=")) {
        error_setg(errp, "'file' must not contain ',offset='");
        return;
    }
    if (!ram_reset_vm_is_whole(errp)) {
        return;
    }
    f = job_create(job_id, &fork_job_driver, NULL, qemu_get_aio_context(),
                   JOB_MANUAL_DISMISS, NULL, NULL, errp);
    if (f) {
        f->file = g_strdup(file);
        f->disks = QAPI_CLONE(RamResetForkDiskList, disks);
        job_start(&f->common);
    }
}
