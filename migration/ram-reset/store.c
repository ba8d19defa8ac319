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
#include "qemu/notify.h"
#include "qemu/ratelimit.h"
#include "qemu/units.h"
#include "block/block.h"
#include "system/runstate.h"
#include "migration/ram-reset.h"
#include "migration/ram-reset/job-context.h"
#include "migration/ram-reset/snapshot.h"
#include "migration/ram-reset/store.h"
#include "migration/ram-reset/store-pieces.h"
#include "system/ram-reset/trace.h"

#define STORE_SLICE_NS (100 * SCALE_MS)
/*
 * An allocation may have to flush the image, and the BQL is held meanwhile: no
 * more bytes than these wait for a flush then
 */
#define STORE_FLUSH (16 * MiB)

typedef struct StoreJob StoreJob;
typedef void StoreStep(StoreJob *job);

struct StoreJob {
    Job common;
    BlockDriverState *bs;       /* with the list of snapshots; a reference */
    QEMUSnapshotInfo sn;
    uint64_t point;
    StorePieces *pieces;
    uint64_t unflushed;         /* bytes since the last flush */
    bool again;                 /* call the last step again */
    RateLimit limit;

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

static void store_share(StoreJob *s)
{
    const RamResetSnapshot *snapshot = store_snapshot(s);

    s->again = snapshot && store_pieces_share(s->pieces, snapshot);
}

static void store_next(StoreJob *s)
{
    if (store_snapshot(s)) {
        store_pieces_next(s->pieces, &s->err);
    }
}

static void store_patch(StoreJob *s)
{
    if (store_snapshot(s)) {
        store_pieces_patch(s->pieces, &s->err);
    }
}

static void store_tables(StoreJob *s)
{
    store_pieces_tables(s->pieces, &s->err);
}

static void store_attach(StoreJob *s)
{
    RamResetSnapshot *snapshot = store_snapshot(s);
    Qcow2Store *store = store_pieces_store(s->pieces);
    uint64_t size = store_pieces_size(s->pieces), shared, own;

    if (snapshot && qcow2_store_attach(store, &s->sn, size, &s->err)) {
        ram_reset_snapshot_stored(snapshot, size,
                                  store_pieces_ram_end(s->pieces));
        store_pieces_become_parent(s->pieces, s->bs, snapshot);
        qcow2_store_count(store, &shared, &own);
        trace_ram_reset_stored(s->sn.name, size, shared, own);
    }
}

static void store_end(StoreJob *s)
{
    RamResetSnapshot *snapshot = ram_reset_snapshot_find_point(s->point);

    if (snapshot) {
        snapshot->storing = false;
    }
    s->again = store_pieces_end(s->pieces);
}

static void store_step(void *opaque)
{
    StoreJob *s = opaque;

    s->step(s);
}

static bool coroutine_fn store_do(StoreJob *s, StoreStep *step)
{
    s->step = step;
    ram_reset_job_call(store_step, s);
    return !s->err;
}

static bool coroutine_fn store_read(StoreJob *s)
{
    int ret = store_pieces_co_read(s->pieces);

    if (ret < 0) {
        error_setg_errno(&s->err, -ret, "The VM state that it should share "
                         "cannot be read");
    }
    return ret >= 0;
}

static bool coroutine_fn store_write(StoreJob *s)
{
    int ret = store_pieces_co_write(s->pieces);

    if (ret < 0) {
        error_setg_errno(&s->err, -ret, "The VM state cannot be written");
    }
    return ret >= 0;
}

static bool coroutine_fn store_begin(StoreJob *s)
{
    do {
        if (!store_do(s, store_share) || job_is_cancelled(&s->common)) {
            return false;
        }
    } while (s->again);
    job_progress_set_remaining(&s->common, store_pieces_left(s->pieces));
    return true;
}

static bool coroutine_fn store_flush(StoreJob *s)
{
    int ret = qcow2_store_co_flush(store_pieces_store(s->pieces));

    if (ret < 0) {
        error_setg_errno(&s->err, -ret, "The VM state cannot be flushed");
    }
    s->unflushed = 0;
    return ret >= 0;
}

static bool coroutine_fn store_all_pieces(StoreJob *s)
{
    while (store_do(s, store_next)) {
        uint64_t bytes = store_pieces_bytes(s->pieces);

        if (store_pieces_are_done(s->pieces)) {
            return true;
        }
        if (store_pieces_are_shared(s->pieces) &&
            !(store_read(s) && store_do(s, store_patch))) {
            return false;
        }
        if (!store_write(s)) {
            return false;
        }
        s->unflushed += bytes;
        if (s->unflushed >= STORE_FLUSH && !store_flush(s)) {
            return false;
        }
        job_progress_update(&s->common, bytes);
        job_progress_set_remaining(&s->common, store_pieces_left(s->pieces));
        job_sleep_ns(&s->common, ratelimit_calculate_delay(&s->limit, bytes));
        if (job_is_cancelled(&s->common)) {
            return false;
        }
    }
    return false;
}

static int coroutine_fn store_run(Job *job, Error **errp)
{
    StoreJob *s = container_of(job, StoreJob, common);
    bool ok = store_begin(s) && store_all_pieces(s) &&
              store_do(s, store_tables) && store_write(s) && store_flush(s) &&
              !job_is_cancelled(job) && store_do(s, store_attach);

    do {
        store_do(s, store_end);
    } while (s->again);
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

    store_pieces_free(s->pieces);
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
                        StorePieces *pieces, uint64_t speed)
{
    s->bs = bdrv_find_node(snapshot->node);
    bdrv_ref(s->bs);
    s->sn = snapshot->info;
    s->point = snapshot->point;
    s->pieces = pieces;
    ratelimit_init(&s->limit);
    ratelimit_set_speed(&s->limit, speed, STORE_SLICE_NS);
    snapshot->storing = true;
    store_follow_shutdown();
    job_progress_set_remaining(&s->common, store_pieces_left(pieces));
    job_start(&s->common);
}

bool ram_reset_store(const char *job_id, const char *tag, uint64_t speed,
                     int flags, BlockCompletionFunc *cb, void *opaque,
                     Error **errp)
{
    RamResetSnapshot *snapshot = store_find(tag, errp);
    StorePieces *pieces;
    StoreJob *s;

    if (!snapshot) {
        return false;
    }
    pieces = store_pieces_new(snapshot, bdrv_find_node(snapshot->node), errp);
    if (!pieces) {
        return false;
    }
    s = job_create(job_id, &store_job_driver, NULL, qemu_get_aio_context(),
                   flags, cb, opaque, errp);
    if (s) {
        store_start(s, snapshot, pieces, speed);
    } else {
        /* Nothing has been allocated, so there is nothing to free in steps */
        store_pieces_end(pieces);
        store_pieces_free(pieces);
    }
    return s;
}

void qmp_ram_reset_store(const char *job_id, const char *tag, bool has_speed,
                         uint64_t speed, Error **errp)
{
    ram_reset_store(job_id, tag, has_speed ? speed : 0, JOB_MANUAL_DISMISS,
                    NULL, NULL, errp);
}
