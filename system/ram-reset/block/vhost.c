/*
 * RAM reset: other processes, and the kernel, that do a device's work
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/main-loop.h"
#include "qemu/timer.h"
#include "standard-headers/linux/virtio_config.h"
#include "system/ram-reset-compat.h"
#include "system/runstate.h"
#include "system/ram-reset-load.h"
#include "system/ram-reset/block/listeners.h"
#include "system/ram-reset/block/vhost.h"
#include "system/ram-reset/trace.h"

/* A request that takes longer is one that the host has trouble with */
#define MAX_WAIT_NS     (10 * NANOSECONDS_PER_SECOND)
/* How often to ask whether a back end is there, while we wait for it */
#define ASK_NS          (100 * SCALE_MS)

/*
 * vhost_dev_start() sets vhost_virtqueue.num, which nobody reads but the
 * debugging command x-query-virtio-vhost-queue-status
 */
#define MARK            (-1)

/* The second queue of each SCSI controller */
#define SCSI_EVENTS     1

/* A logger as it was when the guest was resumed, or is about to stop */
typedef struct Seen {
    RamResetLogger logger;
    VirtIODevice *vdev;         /* NULL unless it is started */
} Seen;

/* Protected by the BQL */
static struct {
    GArray *seen;               /* of Seen; NULL: nobody watches */
    bool running;               /* all devices have been started */
    bool writing;               /* a disk's back end, to say nothing of others */
    char *busy, *unseen;
} state;

static void suspect(char **why, const char *what)
{
    if (!*why) {
        *why = g_strdup(what);
    }
}

static Seen *seen_nr(unsigned i)
{
    return &g_array_index(state.seen, Seen, i);
}

static Seen *find_seen(const struct vhost_dev *dev)
{
    for (unsigned i = 0; i < state.seen->len; i++) {
        if (seen_nr(i)->logger.dev == dev) {
            return seen_nr(i);
        }
    }
    return NULL;
}

static void look(const GArray *loggers)
{
    g_array_set_size(state.seen, 0);
    for (unsigned i = 0; i < loggers->len; i++) {
        Seen s = { .logger = g_array_index(loggers, RamResetLogger, i) };

        s.vdev = s.logger.dev->started ? s.logger.dev->vdev : NULL;
        g_array_append_val(state.seen, s);
    }
}

/* Queues that exist, and get requests from the guest */
static bool has_requests(const Seen *s, unsigned i)
{
    return s->logger.kind != LOGGER_NETWORK &&
           !(s->logger.kind == LOGGER_SCSI && i == SCSI_EVENTS) &&
           virtio_queue_get_desc_addr(s->vdev, s->logger.dev->vq_index + i);
}

static bool is_packed(const VirtIODevice *vdev)
{
    return virtio_vdev_has_feature(vdev, VIRTIO_F_RING_PACKED);
}

/* The index of a ring of available, or of used, buffers */
static uint16_t read_index(VirtIODevice *vdev, hwaddr ring)
{
    uint16_t index = address_space_lduw_le(&address_space_memory,
                                           ring + sizeof(uint16_t),
                                           MEMTXATTRS_UNSPECIFIED, NULL);
    bool big = !virtio_vdev_has_feature(vdev, VIRTIO_F_VERSION_1) &&
               vdev->device_endian == VIRTIO_DEVICE_ENDIAN_BIG;

    return big ? bswap16(index) : index;
}

static uint16_t available(VirtIODevice *vdev, int n)
{
    return read_index(vdev, virtio_queue_get_avail_addr(vdev, n));
}

static uint16_t used(VirtIODevice *vdev, int n)
{
    return read_index(vdev, virtio_queue_get_used_addr(vdev, n));
}

/* There is nothing that a back end that has been started will begin with */
static bool is_taken(const Seen *s, unsigned i)
{
    int n = s->logger.dev->vq_index + i;

    return !has_requests(s, i) ||
           (!is_packed(s->vdev) &&
            available(s->vdev, n) ==
            virtio_queue_get_last_avail_idx(s->vdev, n));
}

static bool is_finished(const Seen *s, unsigned i)
{
    int n = s->logger.dev->vq_index + i;
    uint16_t waiting;

    if (!has_requests(s, i) || is_packed(s->vdev)) {
        return true;
    }
    waiting = available(s->vdev, n) - used(s->vdev, n);
    /* More than the queue has room for is nonsense, which no back end takes */
    return !waiting || waiting > virtio_queue_get_num(s->vdev, n);
}

/* Once the back end has stopped: whether it goes on with what it has taken */
static bool is_idle(const Seen *s, unsigned i)
{
    int n = s->logger.dev->vq_index + i;
    unsigned taken;

    if (!virtio_queue_get_desc_addr(s->vdev, n)) {
        return true;
    }
    taken = virtio_queue_get_last_avail_idx(s->vdev, n);
    return is_packed(s->vdev) ? (taken & UINT16_MAX) == taken >> 16
                              : taken == used(s->vdev, n);
}

static bool has_no_request(const Seen *s, unsigned i)
{
    return !has_requests(s, i) || is_idle(s, i);
}

static bool all_queues(const Seen *s, bool (*test)(const Seen *s, unsigned i))
{
    for (unsigned i = 0; s->vdev && i < s->logger.dev->nvqs; i++) {
        if (!test(s, i)) {
            return false;
        }
    }
    return true;
}

/* A question that takes an answer */
static bool is_there(const Seen *s)
{
    struct vhost_dev *dev = s->logger.dev;
    uint64_t features;

    return dev->vhost_ops && dev->vhost_ops->vhost_get_features &&
           dev->vhost_ops->vhost_get_features(dev, &features) == 0;
}

/* The guest may have been stopped before it has told of a request */
static void kick(const Seen *s)
{
    for (unsigned i = 0; i < s->logger.dev->nvqs; i++) {
        if (!is_finished(s, i)) {
            VirtQueue *vq = virtio_get_queue(s->vdev,
                                             s->logger.dev->vq_index + i);

            event_notifier_set(virtio_queue_get_host_notifier(vq));
        }
    }
}

static void wait_for(const Seen *s)
{
    int64_t begin = get_clock(), asked = begin, now = begin;

    if (all_queues(s, is_finished)) {
        return;
    }
    kick(s);
    while (!all_queues(s, is_finished) && now - begin < MAX_WAIT_NS) {
        g_usleep(20);
        now = get_clock();
        if (now - asked > ASK_NS) {
            if (!is_there(s)) {
                break;
            }
            asked = now;
        }
    }
    trace_ram_reset_vhost_wait(s->vdev->name, now - begin);
}

static bool is_marked(const struct vhost_dev *dev)
{
    for (unsigned i = 0; i < dev->nvqs; i++) {
        if (dev->vqs[i].num != MARK) {
            return false;
        }
    }
    return true;
}

static void mark(struct vhost_dev *dev)
{
    for (unsigned i = 0; i < dev->nvqs; i++) {
        dev->vqs[i].num = MARK;
    }
}

/* Whether those that there are have not been stopped since the guest runs */
static bool are_as_seen(const GArray *loggers)
{
    for (unsigned i = 0; i < loggers->len; i++) {
        struct vhost_dev *dev = g_array_index(loggers, RamResetLogger, i).dev;
        const Seen *s = find_seen(dev);

        if (!s || !!s->vdev != dev->started || !is_marked(dev)) {
            return false;
        }
    }
    return loggers->len == state.seen->len;
}

/* The last handler when the guest is resumed, the first when it is stopped */
static void outermost(void *opaque, bool running, RunState run_state)
{
    g_autoptr(GArray) loggers = ram_reset_loggers();

    state.running = running;
    if (running) {
        g_clear_pointer(&state.busy, g_free);
        state.writing = false;
        look(loggers);
        for (unsigned i = 0; i < state.seen->len; i++) {
            mark(seen_nr(i)->logger.dev);
            if (!all_queues(seen_nr(i), is_taken)) {
                suspect(&state.unseen, "a vhost device was started with "
                        "requests waiting for it, before it had a log");
            }
        }
    } else {
        if (!are_as_seen(loggers)) {
            suspect(&state.unseen, "a vhost device has been connected, "
                    "disconnected, started or stopped while the guest was "
                    "running, and may have written to memory unseen");
        }
        look(loggers);
        for (unsigned i = 0; i < state.seen->len; i++) {
            wait_for(seen_nr(i));
        }
    }
}

/* The first handler when the guest is resumed, the last when it is stopped */
static void innermost(void *opaque, bool running, RunState run_state)
{
    if (running) {
        if (ram_reset_vhost_is_started()) {
            suspect(&state.unseen, "the back end of a vhost device has been "
                    "connected while the guest was stopped, and may have "
                    "written to memory before it had a log");
        }
        return;
    }
    for (unsigned i = 0; i < state.seen->len; i++) {
        const Seen *s = seen_nr(i);

        if (s->vdev && !is_there(s)) {
            suspect(&state.unseen, "the back end of a vhost device is gone, "
                    "what it has written may not have been logged");
        } else if (!all_queues(s, is_idle)) {
            suspect(&state.busy, "the back end of a vhost device has stopped, "
                    "but not finished its requests, and goes on writing to "
                    "guest memory");
            suspect(&state.unseen, state.busy);
            state.writing |= !all_queues(s, has_no_request);
        }
    }
}

static void map_changed(MemoryListener *l, MemoryRegionSection *section)
{
    MemoryRegion *mr = section->mr;

    /* As vhost_section(): back ends do not get a display's memory */
    if (state.running && state.seen->len && memory_region_is_ram(mr) &&
        !(memory_region_get_dirty_log_mask(mr) & (1 << DIRTY_MEMORY_VGA))) {
        suspect(&state.unseen, "the memory map has changed while a vhost "
                "device was running, whose log may not have been merged");
    }
}

void ram_reset_watch_vhost(void)
{
    /* The last to be told of a change */
    static MemoryListener listener = {
        .name = "ram-reset-vhost",
        .region_add = map_changed,
        .region_del = map_changed,
        .priority = INT_MAX,
    };

    assert(bql_locked());
    if (state.seen) {
        return;
    }
    state.seen = g_array_new(false, false, sizeof(Seen));
    qemu_add_vm_change_state_handler_prio(outermost, NULL, INT_MAX);
    qemu_add_vm_change_state_handler_prio(innermost, NULL, INT_MIN);
    memory_listener_register(&listener, &address_space_memory);
    if (phase_check(PHASE_MACHINE_READY) && !runstate_is_running()) {
        g_autoptr(GArray) loggers = ram_reset_loggers();

        if (loggers->len) {
            suspect(&state.busy, "the first ram-reset object was added while "
                    "the guest was stopped, and a vhost device may not have "
                    "finished its requests then");
        }
    }
}

const char *ram_reset_vhost_busy(void)
{
    return state.busy;
}

const char *ram_reset_load_refusal(void)
{
    if (ram_reset_vhost_is_started()) {
        return "the back end of a vhost device has been connected while the "
               "guest was stopped, and is at work; resume the guest (cont), "
               "and load the snapshot then";
    }
    return state.writing ? "the back end of a vhost device has not finished "
                           "its requests, and would write to the memory that "
                           "is loaded; resume the guest (cont), and try again "
                           "when its disk answers" : NULL;
}

const char *ram_reset_vhost_unseen(void)
{
    return state.busy ?: state.unseen;
}

void ram_reset_vhost_begin_anew(void)
{
    g_clear_pointer(&state.unseen, g_free);
}
