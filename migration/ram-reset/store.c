/*
 * The job that stores a snapshot, which is in memory only, in its image
 *
 * The guest runs meanwhile.  The job's coroutine writes; all else is done in
 * bottom halves of the context in which snapshot jobs run, where no save, load
 * or deletion is under way.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qapi/error.h"
#include "qapi/qapi-commands-ram-reset.h"
#include "qemu/job.h"
#include "qemu/memalign.h"
#include "qemu/notify.h"
#include "qemu/ratelimit.h"
#include "block/block.h"
#include "system/runstate.h"
#include "migration/ram-reset.h"
#include "migration/ram-reset/qcow2-store.h"
#include "migration/ram-reset/snapshot.h"
#include "migration/ram-reset/store.h"
#include "migration/ram-reset/vmstate/compose.h"

#define STORE_SLICE_NS (100 * SCALE_MS)

typedef struct StoreJob StoreJob;
typedef void StoreStep(StoreJob *job);

struct StoreJob {
    Job common;
    BlockDriverState *bs;       /* with the list of snapshots; a reference */
    QEMUSnapshotInfo sn;
    uint64_t point;
    Qcow2Store *store;
    VMStateComposer *composer;
    GByteArray *composed;       /* bytes that are to be written next */
    uint64_t size;              /* of the VM state so far, in bytes */
    uint8_t *buf;
    uint64_t bytes;             /* in @buf; 0: there is nothing to write */
    RateLimit limit;

    Coroutine *co;
    StoreStep *step;
    Error *err;                 /* of the last step */
};

/* The snapshot may have been deleted, or stored; another may have its place */
static RamResetSnapshot *store_snapshot(StoreJob *s)
{
    RamResetSnapshot *snapshot = ram_reset_snapshot_find(s->bs, &s->sn);

    if (!snapshot || !snapshot->vmstate || snapshot->point != s->point) {
        error_setg(&s->err, "Snapshot '%s' has been deleted while a job was "
                   "storing it", s->sn.name);
        return NULL;
    }
    return snapshot;
}

static void store_compose(StoreJob *s)
{
    size_t piece = qcow2_store_piece(s->store);

    s->bytes = 0;
    if (!store_snapshot(s) ||
        !vmstate_compose_next(s->composer, s->composed, piece, &s->err)) {
        return;
    }
    s->bytes = MIN(piece, s->composed->len);
    if (!s->bytes) {
        return;
    }
    memcpy(s->buf, s->composed->data, s->bytes);
    memset(s->buf + s->bytes, 0, piece - s->bytes);
    g_byte_array_remove_range(s->composed, 0, s->bytes);
    s->size += s->bytes;
    /* All pieces are of one size; the last one ends with zeros */
    s->bytes = piece;
    if (!qcow2_store_next(s->store, s->bytes, &s->err)) {
        s->bytes = 0;
    }
}

static void store_tables(StoreJob *s)
{
    qemu_vfree(s->buf);
    s->buf = NULL;
    qcow2_store_tables(s->store, &s->buf, &s->bytes, &s->err);
}

static void store_attach(StoreJob *s)
{
    RamResetSnapshot *snapshot = store_snapshot(s);

    if (snapshot &&
        qcow2_store_attach(s->store, &s->sn, s->size, &s->err)) {
        ram_reset_snapshot_stored(snapshot, s->size,
                                  vmstate_compose_ram_end(s->composer));
    }
}

static void store_end(StoreJob *s)
{
    RamResetSnapshot *snapshot = ram_reset_snapshot_find_point(s->point);

    if (snapshot) {
        snapshot->storing = false;
    }
    qcow2_store_free(s->store);
    s->store = NULL;
}

static void store_step_bh(void *opaque)
{
    StoreJob *s = opaque;

    s->step(s);
    aio_co_wake(s->co);
}

static bool coroutine_fn store_do(StoreJob *s, StoreStep *step)
{
    s->step = step;
    s->co = qemu_coroutine_self();
    aio_bh_schedule_oneshot(ram_reset_job_context(), store_step_bh, s);
    qemu_coroutine_yield();
    return !s->err;
}

static bool coroutine_fn store_write(StoreJob *s)
{
    int ret = qcow2_store_co_write(s->store, s->buf, s->bytes);

    if (ret < 0) {
        error_setg_errno(&s->err, -ret, "The VM state cannot be written");
    }
    return ret >= 0;
}

static bool coroutine_fn store_pieces(StoreJob *s)
{
    while (store_do(s, store_compose)) {
        uint64_t left;

        if (!s->bytes) {
            return true;
        }
        if (!store_write(s)) {
            return false;
        }
        left = vmstate_compose_left(s->composer) + s->composed->len;
        job_progress_update(&s->common, s->bytes);
        job_progress_set_remaining(&s->common, left);
        job_sleep_ns(&s->common,
                     ratelimit_calculate_delay(&s->limit, s->bytes));
        if (job_is_cancelled(&s->common)) {
            return false;
        }
    }
    return false;
}

static bool coroutine_fn store_flush(StoreJob *s)
{
    int ret = qcow2_store_co_flush(s->store);

    if (ret < 0) {
        error_setg_errno(&s->err, -ret, "The VM state cannot be flushed");
    }
    return ret >= 0;
}

static int coroutine_fn store_run(Job *job, Error **errp)
{
    StoreJob *s = container_of(job, StoreJob, common);
    bool ok = store_pieces(s) && store_do(s, store_tables) && store_write(s) &&
              store_flush(s) && !job_is_cancelled(job) &&
              store_do(s, store_attach);

    store_do(s, store_end);
    if (s->err) {
        error_prepend(&s->err, "Snapshot '%s' could not be stored, and is in "
                      "memory as before: ", s->sn.name);
        error_propagate(errp, g_steal_pointer(&s->err));
        return -EIO;
    }
    return ok ? 0 : -ECANCELED;
}

static void store_job_free(Job *job)
{
    StoreJob *s = container_of(job, StoreJob, common);

    vmstate_compose_free(s->composer);
    g_byte_array_unref(s->composed);
    qemu_vfree(s->buf);
    ratelimit_destroy(&s->limit);
    bdrv_unref(s->bs);
}

static const JobDriver store_job_driver = {
    .instance_size = sizeof(StoreJob),
    .job_type = JOB_TYPE_SNAPSHOT_SAVE,
    .run = store_run,
    .free = store_job_free,
};

/* At QEMU's end, before others wait for these jobs */
static void store_cancel_all(Notifier *n, void *opaque)
{
    JOB_LOCK_GUARD();

    for (Job *job = job_next_locked(NULL); job; job = job_next_locked(job)) {
        if (job->driver == &store_job_driver &&
            !job_is_completed_locked(job)) {
            job_cancel_locked(job, true);
        }
    }
}

static RamResetSnapshot *store_find(const char *tag, Error **errp)
{
    RamResetSnapshot *snapshot = ram_reset_snapshot_find_in_memory(tag);

    if (!snapshot) {
        error_setg(errp, "No snapshot '%s' is in memory only", tag);
        return NULL;
    }
    if (snapshot->storing) {
        error_setg(errp, "A job stores snapshot '%s' already", tag);
        return NULL;
    }
    if (!bdrv_find_node(snapshot->node)) {
        error_setg(errp, "The image of snapshot '%s' has been removed", tag);
        return NULL;
    }
    return snapshot;
}

static void store_follow_shutdown(void)
{
    static Notifier shutdown = { .notify = store_cancel_all };

    /* The last notifier that was added is called first */
    ram_reset_job_context();
    if (!shutdown.node.le_prev) {
        qemu_register_shutdown_notifier(&shutdown);
    }
}

static void store_start(StoreJob *s, RamResetSnapshot *snapshot,
                        Qcow2Store *store, VMStateComposer *composer,
                        uint64_t speed)
{
    s->bs = bdrv_find_node(snapshot->node);
    bdrv_ref(s->bs);
    s->sn = snapshot->info;
    s->point = snapshot->point;
    s->store = store;
    s->composer = composer;
    s->composed = g_byte_array_new();
    s->buf = qemu_blockalign(s->bs, qcow2_store_piece(store));
    ratelimit_init(&s->limit);
    ratelimit_set_speed(&s->limit, speed, STORE_SLICE_NS);
    snapshot->storing = true;
    store_follow_shutdown();
    job_progress_set_remaining(&s->common, vmstate_compose_left(composer));
    job_start(&s->common);
}

bool ram_reset_store(const char *job_id, const char *tag, uint64_t speed,
                     int flags, BlockCompletionFunc *cb, void *opaque,
                     Error **errp)
{
    RamResetSnapshot *snapshot = store_find(tag, errp);
    VMStateComposer *composer;
    Qcow2Store *store;
    StoreJob *s;

    if (!snapshot) {
        return false;
    }
    composer = vmstate_compose_new(snapshot->vmstate, snapshot->ram_end,
                                   snapshot->point, errp);
    if (!composer) {
        return false;
    }
    store = qcow2_store_new(bdrv_find_node(snapshot->node), errp);
    s = store ? job_create(job_id, &store_job_driver, NULL,
                           qemu_get_aio_context(), flags, cb, opaque, errp)
              : NULL;
    if (s) {
        store_start(s, snapshot, store, composer, speed);
    } else {
        vmstate_compose_free(composer);
        g_clear_pointer(&store, qcow2_store_free);
    }
    return s;
}

void qmp_ram_reset_store(const char *job_id, const char *tag, bool has_speed,
                         uint64_t speed, Error **errp)
{
    ram_reset_store(job_id, tag, has_speed ? speed : 0, JOB_MANUAL_DISMISS,
                    NULL, NULL, errp);
}
