/*
 * RAM reset: requests that the back end of a vhost device has under way
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef RAM_RESET_BLOCK_VHOST_QUEUES_H
#define RAM_RESET_BLOCK_VHOST_QUEUES_H

#include "hw/virtio/virtio.h"
#include "system/ram-reset/block/listeners.h"

/*
 * The guest can write anything to its rings, so that a ring alone is no reason
 * to refuse a load, or to wait for long.  The back end reports what it has
 * taken (VHOST_USER_GET_VRING_BASE); one with an in-flight region
 * (VHOST_USER_GET_INFLIGHT_FD) reports each request there, in memory that the
 * guest does not have.  Without the region the used ring has to tell how many
 * requests are finished, as far as it agrees with what the back end has taken.
 *
 * All functions with the BQL held.
 */

/* A logger as it was when the guest was resumed, or is about to stop */
typedef struct VhostQueues {
    RamResetLogger logger;
    VirtIODevice *vdev;         /* NULL unless the device is started */
    bool restarted;             /* since the guest was resumed */
    /* What the back end had taken when it was started */
    uint16_t start[VIRTIO_QUEUE_MAX];
    /* Of these, requests that will never be finished */
    uint16_t lost[VIRTIO_QUEUE_MAX];
} VhostQueues;

typedef enum {
    VHOST_QUEUES_IDLE,
    VHOST_QUEUES_EVENTS,        /* only a buffer without a request is kept */
    VHOST_QUEUES_BUSY,          /* requests may be under way */
} VhostQueuesState;

/* Begin with the device as it is; the guest is about to stop */
void vhost_queues_look(VhostQueues *q, const RamResetLogger *logger);

/*
 * The device was just started, with nothing under way: what the used ring lacks
 * now, it lacks for good
 */
void vhost_queues_started(VhostQueues *q);

/* Whether there is no request that a back end would begin with when started */
bool vhost_queues_all_taken(const VhostQueues *q);

/*
 * The vCPUs are stopped, the device is not: wait until its requests are done.
 * All such waits that end without success take ten seconds in sum, and a
 * hundredth of the time that QEMU runs, whatever the guest writes.
 */
void vhost_queues_wait(const VhostQueues *q);

/* Once the device is stopped, what it may still write to */
VhostQueuesState vhost_queues_state(const VhostQueues *q);

/* Whether the back end answers */
bool vhost_queues_has_backend(const VhostQueues *q);

/*
 * The device is stopped: end the connection, and wait until the back end has
 * ended it as well, which then has no memory of the guest's.  No longer than
 * vhost_queues_wait() would.
 *
 * Returns: false if the back end has not done so
 */
bool vhost_queues_disconnect(const VhostQueues *q);

#endif
