/*
 * RAM reset: unfinished requests at the back end of a vhost device
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include <poll.h>
#include "qemu/timer.h"
#include "chardev/char-fe.h"
#include "chardev/char-socket.h"
#include "hw/virtio/vhost-scsi-common.h"
#include "hw/virtio/vhost-user-blk.h"
#include "standard-headers/linux/virtio_config.h"
#include "system/ram-reset-compat.h"
#include "system/ram-reset/block/vhost-queues.h"
#include "system/ram-reset/trace.h"

/*
 * The limits for all waits that fail: this time in sum, and this part of QEMU's
 * run time
 */
#define MAX_PATIENCE_NS (10 * NANOSECONDS_PER_SECOND)
#define PATIENCE_PART   100
/*
 * The part of the rest that one wait may use; and that a wait for a doubtful
 * queue may
 */
#define WAIT_PART       4
#define UNLIKELY_PART      100
/*
 * The interval for asking whether a back end is still there, while we wait for
 * it
 */
#define ASK_NS          (100 * SCALE_MS)

/* The second queue of a SCSI controller */
#define SCSI_EVENTS     1

/* VhostUserInflight of the vhost-user protocol, for split rings */
typedef struct InflightRequest {
    uint8_t inflight;
    uint8_t unused[15];
} InflightRequest;

typedef struct InflightQueue {
    uint8_t unused[16];
    InflightRequest requests[];
} InflightQueue;

static struct {
    bool known;
    int64_t ns, at;
} patience;

static void refill_patience(void)
{
    int64_t now = get_clock();

    patience.ns = patience.known
                  ? MIN(MAX_PATIENCE_NS,
                        patience.ns + (now - patience.at) / PATIENCE_PART)
                  : MAX_PATIENCE_NS;
    patience.known = true;
    patience.at = now;
}

static int queue_nr(const VhostQueues *q, unsigned i)
{
    return q->logger.dev->vq_index + i;
}

static bool queue_exists(const VhostQueues *q, unsigned i)
{
    return virtio_queue_get_desc_addr(q->vdev, queue_nr(q, i));
}

static bool has_requests(const VhostQueues *q, unsigned i)
{
    return q->logger.kind != LOGGER_NETWORK &&
           !(q->logger.kind == LOGGER_SCSI && i == SCSI_EVENTS) &&
           queue_exists(q, i);
}

static bool is_packed(const VhostQueues *q)
{
    return virtio_vdev_has_feature(q->vdev, VIRTIO_F_RING_PACKED);
}

/* The index of a ring of available, or of used, buffers */
static uint16_t queue_read_index(VirtIODevice *vdev, hwaddr ring)
{
    uint16_t index = address_space_lduw_le(&address_space_memory,
                                           ring + sizeof(uint16_t),
                                           MEMTXATTRS_UNSPECIFIED, NULL);
    bool big = !virtio_vdev_has_feature(vdev, VIRTIO_F_VERSION_1) &&
               vdev->device_endian == VIRTIO_DEVICE_ENDIAN_BIG;

    return big ? bswap16(index) : index;
}

static uint16_t queue_available(const VhostQueues *q, unsigned i)
{
    return queue_read_index(
        q->vdev, virtio_queue_get_avail_addr(q->vdev, queue_nr(q, i)));
}

/* The index of finished requests, with lost ones counted as finished */
static uint16_t queue_finished(const VhostQueues *q, unsigned i)
{
    return queue_read_index(
        q->vdev, virtio_queue_get_used_addr(q->vdev, queue_nr(q, i))) +
        q->lost[i];
}

/*
 * The number of requests that the back end had taken when it was started, or
 * stopped
 */
static unsigned queue_taken(const VhostQueues *q, unsigned i)
{
    return virtio_queue_get_last_avail_idx(q->vdev, queue_nr(q, i));
}

/* A queue cannot have more unfinished requests than it has entries */
static bool has_room(const VhostQueues *q, unsigned i, uint16_t requests)
{
    return requests <= virtio_queue_get_num(q->vdev, queue_nr(q, i));
}

static const struct vhost_inflight *find_region(const VhostQueues *q)
{
    const struct vhost_inflight *region =
        q->logger.kind == LOGGER_BLK ? VHOST_USER_BLK(q->vdev)->inflight :
        q->logger.kind == LOGGER_SCSI ? VHOST_SCSI_COMMON(q->vdev)->inflight :
        NULL;

    return region && region->addr && !is_packed(q) ? region : NULL;
}

static bool region_is_empty(const VhostQueues *q,
                            const struct vhost_inflight *region, unsigned i)
{
    uint64_t size = region->size / q->logger.dev->nvqs;
    const InflightQueue *queue = region->addr + i * size;

    for (unsigned n = 0; n < region->queue_size &&
         (const void *)&queue->requests[n + 1] <= (const void *)queue + size;
         n++) {
        if (qatomic_read(&queue->requests[n].inflight)) {
            return false;
        }
    }
    return true;
}

void vhost_queues_look(VhostQueues *q, const RamResetLogger *logger)
{
    *q = (VhostQueues) {
        .logger = *logger,
        .vdev = logger->dev->started ? logger->dev->vdev : NULL,
    };
    for (unsigned i = 0; q->vdev && i < logger->dev->nvqs; i++) {
        q->start[i] = queue_taken(q, i);
    }
}

void vhost_queues_started(VhostQueues *q)
{
    for (unsigned i = 0; q->vdev && i < q->logger.dev->nvqs; i++) {
        q->lost[i] = 0;
        if (queue_exists(q, i) && !is_packed(q) &&
            queue_available(q, i) == q->start[i]) {
            q->lost[i] = q->start[i] - queue_finished(q, i);
        }
    }
}

bool vhost_queues_all_taken(const VhostQueues *q)
{
    for (unsigned i = 0; q->vdev && i < q->logger.dev->nvqs; i++) {
        if (has_requests(q, i) &&
            (is_packed(q) ||
             queue_available(q, i) != (uint16_t)queue_taken(q, i))) {
            return false;
        }
    }
    return true;
}

/* Whether to wait for a queue; the device is running */
static bool is_awaited(const VhostQueues *q, unsigned i)
{
    const struct vhost_inflight *region = find_region(q);
    uint16_t waiting;

    if (!has_requests(q, i) || is_packed(q)) {
        return false;
    }
    if (region) {
        return !region_is_empty(q, region, i);
    }
    waiting = queue_available(q, i) - queue_finished(q, i);
    return waiting && has_room(q, i, waiting);
}

/*
 * Whether there are more unfinished requests than have become available since
 * the back end was started.  This also happens if the indices have wrapped
 * around.
 */
static bool is_unlikely(const VhostQueues *q, unsigned i)
{
    uint16_t available = queue_available(q, i);

    return !find_region(q) && (uint16_t)(available - queue_finished(q, i)) >
                              (uint16_t)(available - q->start[i]);
}

static bool any_awaited(const VhostQueues *q, bool and_likely)
{
    for (unsigned i = 0; q->vdev && i < q->logger.dev->nvqs; i++) {
        if (is_awaited(q, i) && !(and_likely && is_unlikely(q, i))) {
            return true;
        }
    }
    return false;
}

/* Send a message that needs a reply */
bool vhost_queues_has_backend(const VhostQueues *q)
{
    struct vhost_dev *dev = q->logger.dev;
    uint64_t features;

    return dev->vhost_ops && dev->vhost_ops->vhost_get_features &&
           dev->vhost_ops->vhost_get_features(dev, &features) == 0;
}

/*
 * The guest may have been stopped before it notified the back end of a
 * request.  A back end that has replied twice has seen the notification.
 */
static void queue_notify(const VhostQueues *q)
{
    bool any = false;

    for (unsigned i = 0; q->vdev && i < q->logger.dev->nvqs; i++) {
        if (has_requests(q, i) && !is_packed(q) &&
            queue_available(q, i) != queue_finished(q, i)) {
            event_notifier_set(virtio_queue_get_host_notifier(
                virtio_get_queue(q->vdev, queue_nr(q, i))));
            any = true;
        }
    }
    if (any && find_region(q)) {
        vhost_queues_has_backend(q);
        vhost_queues_has_backend(q);
    }
}

void vhost_queues_wait(const VhostQueues *q)
{
    int64_t begin = get_clock(), asked = begin, now = begin, limit;

    queue_notify(q);
    if (!any_awaited(q, false)) {
        return;
    }
    refill_patience();
    limit = patience.ns / (any_awaited(q, true) ? WAIT_PART : UNLIKELY_PART);
    while (any_awaited(q, false) && now - begin < limit) {
        g_usleep(20);
        now = get_clock();
        if (now - asked > ASK_NS) {
            if (!vhost_queues_has_backend(q)) {
                break;
            }
            asked = now;
        }
    }
    if (any_awaited(q, false)) {
        patience.ns -= MIN(patience.ns, now - begin);
    }
    trace_ram_reset_vhost_wait(q->vdev->name, now - begin);
}

static VhostQueuesState queue_state(const VhostQueues *q, unsigned i)
{
    const struct vhost_inflight *region = find_region(q);
    VhostQueuesState busy = has_requests(q, i) ? VHOST_QUEUES_BUSY
                                               : VHOST_QUEUES_EVENTS;
    unsigned now = queue_exists(q, i) ? queue_taken(q, i) : 0;

    if (!queue_exists(q, i)) {
        return VHOST_QUEUES_IDLE;
    }
    if (is_packed(q)) {
        /* The back end has written both halves */
        return (now & UINT16_MAX) == now >> 16 ? VHOST_QUEUES_IDLE : busy;
    }
    if (region && has_requests(q, i)) {
        return region_is_empty(q, region, i) ? VHOST_QUEUES_IDLE : busy;
    }
    return (uint16_t)now == queue_finished(q, i) ? VHOST_QUEUES_IDLE : busy;
}

VhostQueuesState vhost_queues_state(const VhostQueues *q)
{
    VhostQueuesState state = VHOST_QUEUES_IDLE;

    for (unsigned i = 0; q->vdev && i < q->logger.dev->nvqs; i++) {
        state = MAX(state, queue_state(q, i));
    }
    return state;
}

static Chardev *find_chardev(const VhostQueues *q)
{
    return q->logger.kind == LOGGER_BLK
           ? qemu_chr_fe_get_driver(&VHOST_USER_BLK(q->vdev)->chardev) :
           q->logger.kind == LOGGER_SCSI
           ? qemu_chr_fe_get_driver(
                &VIRTIO_SCSI_COMMON(q->vdev)->conf.chardev) : NULL;
}

bool vhost_queues_disconnect(const VhostQueues *q)
{
    Chardev *chr = find_chardev(q);
    QIOChannelSocket *sioc =
        chr && object_dynamic_cast(OBJECT(chr), TYPE_CHARDEV_SOCKET)
        ? SOCKET_CHARDEV(chr)->sioc : NULL;
    struct pollfd end = { .fd = sioc ? sioc->fd : -1 };
    int64_t begin = get_clock();
    bool ended;

    if (!sioc) {
        return false;
    }
    refill_patience();
    shutdown(sioc->fd, SHUT_WR);
    RETRY_ON_EINTR(poll(&end, 1, patience.ns / WAIT_PART / SCALE_MS));
    ended = end.revents & POLLHUP;
    if (!ended) {
        patience.ns -= MIN(patience.ns, get_clock() - begin);
    }
    return ended;
}
