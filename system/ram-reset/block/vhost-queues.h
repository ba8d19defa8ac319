/*
 * RAM reset: unfinished requests at the back end of a vhost device
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef RAM_RESET_BLOCK_VHOST_QUEUES_H
#define RAM_RESET_BLOCK_VHOST_QUEUES_H

#include "hw/virtio/virtio.h"
#include "system/ram-reset/block/listeners.h"

/*
 * The guest can write anything to its rings: a ring alone is no reason to
 * refuse a load, or to wait for long.  The back end reports the requests that
 * it has taken (VHOST_USER_GET_VRING_BASE).  A back end with an in-flight
 * region (VHOST_USER_GET_INFLIGHT_FD) reports each request there, in memory
 * that the guest cannot access.  Without the region, the used ring shows how
 * many requests are finished, if it agrees with the number that the back end
 * has taken.
 *
 * All functions need the BQL.
 */

/* A logger, as it was when the guest was resumed, or before it stops */
typedef struct VhostQueues {
    RamResetLogger logger;
    VirtIODevice *vdev;         /* NULL unless the device is started */
    bool restarted;             /* since the guest was resumed */
    /* The requests that the back end had taken when it was started */
    uint16_t start[VIRTIO_QUEUE_MAX];
    /* The part of these that will never be finished */
    uint16_t lost[VIRTIO_QUEUE_MAX];
} VhostQueues;

typedef enum {
    VHOST_QUEUES_IDLE,
    VHOST_QUEUES_EVENTS,        /* only a buffer without a request is left */
    VHOST_QUEUES_BUSY,          /* requests may be unfinished */
} VhostQueuesState;

/* Read the current state of the device; the guest is about to stop */
void vhost_queues_look(VhostQueues *q, const RamResetLogger *logger);

/*
 * The device was just started, with nothing unfinished: requests that are not
 * in the used ring now are lost
 */
void vhost_queues_started(VhostQueues *q);

/* Whether there is no request that a back end would start with */
bool vhost_queues_all_taken(const VhostQueues *q);

/*
 * The vCPUs are stopped, the device is not: wait until its requests are
 * finished.  All waits that fail are limited to ten seconds in sum, and to a
 * hundredth of the time that QEMU runs, whatever the guest writes.
 */
void vhost_queues_wait(const VhostQueues *q);

/* Once the device is stopped, the requests for which it may still write */
VhostQueuesState vhost_queues_state(const VhostQueues *q);

/* Whether the back end replies */
bool vhost_queues_has_backend(const VhostQueues *q);

/*
 * The device is stopped: close the connection, and wait until the back end has
 * closed it as well.  It has none of the guest's memory then.  This waits no
 * longer than vhost_queues_wait() would.
 *
 * Returns: false if the back end has not closed it
 */
bool vhost_queues_disconnect(const VhostQueues *q);

#endif
