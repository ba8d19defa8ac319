/*
 * Work on the refcounts of a qcow2 image
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "block/aio-wait.h"
#include "block/block_int.h"
#include "block/qcow2.h"
#include "migration/ram-reset/qcow2-locked.h"

typedef struct LockedRun {
    BlockDriverState *bs;
    Qcow2LockedWork *work;
    void *opaque;
    int ret;
} LockedRun;

static void coroutine_fn locked_co_run(void *opaque)
{
    LockedRun *run = opaque;
    BlockDriverState *bs = run->bs;
    int ret = -ENOMEDIUM;

    GRAPH_RDLOCK_GUARD();
    if (bs->drv) {
        BDRVQcow2State *s = bs->opaque;

        qemu_co_mutex_lock(&s->lock);
        ret = run->work(bs, run->opaque);
        qemu_co_mutex_unlock(&s->lock);
    }
    run->ret = ret;
    aio_wait_kick();
}

int ram_reset_qcow2_locked(BlockDriverState *bs, Qcow2LockedWork *work,
                           void *opaque)
{
    LockedRun run = {
        .bs = bs, .work = work, .opaque = opaque, .ret = -EINPROGRESS,
    };

    aio_co_enter(qemu_get_aio_context(),
                 qemu_coroutine_create(locked_co_run, &run));
    AIO_WAIT_WHILE_UNLOCKED(NULL, run.ret == -EINPROGRESS);
    return run.ret;
}

int ram_reset_qcow2_may_change(BlockDriverState *bs)
{
    return bdrv_is_read_only(bs) || (bs->open_flags & BDRV_O_INACTIVE)
           ? -EPERM : 0;
}
