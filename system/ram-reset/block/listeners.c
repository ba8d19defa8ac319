/*
 * RAM reset: who follows guest RAM, and which of them say what they write
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qapi/error.h"
#include "standard-headers/linux/virtio_config.h"
#include "net/vhost_net.h"
#include "system/ram-reset-compat.h"
#include "system/ram-reset.h"
#include "system/ram-reset/block/listeners.h"

/* Devices of QEMU, other than network interfaces, that have a vhost_dev */
static const struct {
    const char *type;
    bool trusted;
    LoggerKind kind;
    const char *advice;
} devices[] = {
    { "vhost-user-blk", true, LOGGER_BLK },
    { "vhost-user-scsi", true, LOGGER_SCSI },
    { "vhost-vsock-device", false, 0,
      "the kernel logs its queues only, not the data. A virtio-serial port, or "
      "a network interface, is seen" },
    { "vhost-user-fs-device", false, 0,
      "what virtiofsd has open is not part of a snapshot either. A disk, or a "
      "share by the network, can be rewound" },
    { "vhost-scsi", false, 0,
      "the kernel logs its queues only, not the data. virtio-scsi, or "
      "vhost-user-scsi, is seen" },
    { "vhost-user-vsock-device", false, 0,
      "a virtio-serial port, or a network interface, is seen" },
    { "vhost-user-gpu", false, 0, "virtio-gpu or another display is seen" },
};

/* The same by the names of listeners that have no vhost_dev */
static const struct {
    const char *name, *advice;
} listeners[] = {
    { "vfio", "an emulated or a virtio device, in place of the assigned one, "
              "is seen" },
    { "vhost-vdpa", "a virtio device of QEMU's, or one with vhost-user, in "
                    "place of vDPA, is seen" },
};

static const char any_advice[] =
    "a device of QEMU's own in its place is seen";

/* Listeners of QEMU and of RAM reset that hold no memory */
static bool only_looks(const MemoryListener *l)
{
    DeviceMemoryState *plugged = current_machine->device_memory;

    /* KVM looks up pages of a changed mapping; the machine counts slots */
    return !l->region_add || (plugged && l == &plugged->listener) ||
           (l->name && (g_str_has_prefix(l->name, "kvm-") ||
                        g_str_has_prefix(l->name, "ram-reset")));
}

/* Listeners that may have pinned pages, or passed on a file */
static GPtrArray *find_holders(void)
{
    GPtrArray *found = g_ptr_array_new();
    MemoryListener *l;

    QTAILQ_FOREACH(l, &memory_listeners, link) {
        if (!only_looks(l)) {
            g_ptr_array_add(found, l);
        }
    }
    return found;
}

const char *ram_reset_memory_listener(void)
{
    g_autoptr(GPtrArray) holders = find_holders();
    MemoryListener *l = holders->len ? g_ptr_array_index(holders, 0) : NULL;

    return l ? l->name ?: "somebody" : NULL;
}

static struct vhost_dev *vhost_of(MemoryListener *l)
{
    return g_strcmp0(l->name, "vhost")
           ? NULL : container_of(l, struct vhost_dev, memory_listener);
}

static bool is_network(const struct vhost_dev *dev)
{
    g_autofree NetClientState **ncs = g_new(NetClientState *, MAX_QUEUE_NUM);
    int nr = qemu_find_net_clients_except(NULL, ncs, NET_CLIENT_DRIVER_NIC,
                                          MAX_QUEUE_NUM);

    for (int i = 0; i < MIN(nr, MAX_QUEUE_NUM); i++) {
        struct vhost_net *net = get_vhost_net(ncs[i]);

        if (net && &net->dev == dev) {
            return true;
        }
    }
    return false;
}

typedef struct Search {
    const struct vhost_dev *dev;
    int nr;                     /* in the table */
} Search;

static int has_dev(Object *obj, void *opaque)
{
    Search *search = opaque;

    for (int i = 0; i < ARRAY_SIZE(devices); i++) {
        if (object_dynamic_cast(obj, devices[i].type)) {
            VirtioDeviceClass *vdc = VIRTIO_DEVICE_GET_CLASS(obj);

            search->nr = i;
            return vdc->get_vhost &&
                   vdc->get_vhost(VIRTIO_DEVICE(obj)) == search->dev;
        }
    }
    return 0;
}

/* Its place in the table, or -1 */
static int find_device(const struct vhost_dev *dev)
{
    Search search = { .dev = dev };

    return object_child_foreach_recursive(object_get_root(), has_dev, &search)
           ? search.nr : -1;
}

/* Why what @dev writes is not logged, to be freed; NULL if it is, and @kind */
static char *why_unlogged(const struct vhost_dev *dev, LoggerKind *kind)
{
    bool network = is_network(dev);
    int nr = network ? -1 : find_device(dev);

    *kind = network || nr < 0 ? LOGGER_NETWORK : devices[nr].kind;
    if (dev->vhost_ops->backend_type != VHOST_BACKEND_TYPE_KERNEL &&
        dev->vhost_ops->backend_type != VHOST_BACKEND_TYPE_USER) {
        return g_strdup("a virtio device of QEMU's, or one with vhost-user, in "
                        "its place is seen");
    }
    if (!network && (nr < 0 || !devices[nr].trusted)) {
        return g_strdup_printf("%s: %s", nr < 0 ? "unknown device"
                                                : devices[nr].type,
                               nr < 0 ? any_advice : devices[nr].advice);
    }
    if (dev->migration_blocker) {
        return g_strdup_printf("its back end does not log that (%s), one that "
                               "does is seen",
                               error_get_pretty(dev->migration_blocker));
    }
    if (dev->acked_features & (1ULL << VIRTIO_F_IOMMU_PLATFORM)) {
        return g_strdup("it is behind an IOMMU, without one "
                        "(iommu_platform=off) it is seen");
    }
    return NULL;
}

static const char *advice_for(const char *name)
{
    for (int i = 0; i < ARRAY_SIZE(listeners); i++) {
        if (name && g_str_has_prefix(name, listeners[i].name)) {
            return listeners[i].advice;
        }
    }
    return any_advice;
}

char *ram_reset_unlogged_listener(void)
{
    g_autoptr(GPtrArray) holders = find_holders();

    for (unsigned i = 0; i < holders->len; i++) {
        MemoryListener *l = g_ptr_array_index(holders, i);
        struct vhost_dev *dev = vhost_of(l);
        LoggerKind kind;
        g_autofree char *why = dev ? why_unlogged(dev, &kind)
                                   : g_strdup(advice_for(l->name));

        if (why) {
            return g_strdup_printf("%s holds guest memory, and may write to "
                                   "it without a log: %s",
                                   l->name ?: "somebody", why);
        }
    }
    return NULL;
}

bool ram_reset_vhost_is_started(void)
{
    g_autoptr(GPtrArray) holders = find_holders();

    for (unsigned i = 0; i < holders->len; i++) {
        struct vhost_dev *dev = vhost_of(g_ptr_array_index(holders, i));

        if (dev && dev->started) {
            return true;
        }
    }
    return false;
}

GArray *ram_reset_loggers(void)
{
    g_autoptr(GPtrArray) holders = find_holders();
    GArray *loggers = g_array_new(false, false, sizeof(RamResetLogger));

    for (unsigned i = 0; i < holders->len; i++) {
        struct vhost_dev *dev = vhost_of(g_ptr_array_index(holders, i));
        RamResetLogger logger = { .dev = dev };
        g_autofree char *why = dev ? why_unlogged(dev, &logger.kind) : NULL;

        if (dev && !why) {
            g_array_append_val(loggers, logger);
        }
    }
    return loggers;
}
