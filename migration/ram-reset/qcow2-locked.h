/*
 * Work on the refcounts of a qcow2 image
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef MIGRATION_RAM_RESET_QCOW2_LOCKED_H
#define MIGRATION_RAM_RESET_QCOW2_LOCKED_H

#include "block/block.h"

/* Clusters at once: about a millisecond, in which a vCPU may wait for the BQL */
#define QCOW2_AT_ONCE 4096

/* Called with the image's lock held; an error may close a damaged image */
typedef int coroutine_fn Qcow2LockedWork(BlockDriverState *bs, void *opaque);

/**
 * ram_reset_qcow2_locked: do @work in a coroutine, which can wait for the
 * image's lock: requests of the guest hold it across waits
 *
 * @bs: the qcow2 image itself
 *
 * With the BQL held, not in a coroutine.
 *
 * Returns: the result of @work, which is not positive; -ENOMEDIUM without a call
 *     of it if the image has been closed
 */
int ram_reset_qcow2_locked(BlockDriverState *bs, Qcow2LockedWork *work,
                           void *opaque);

/**
 * ram_reset_qcow2_may_change: 0; -EPERM if QEMU must not write to the image now
 */
int ram_reset_qcow2_may_change(BlockDriverState *bs);

#endif
