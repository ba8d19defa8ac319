/*
 * RAM reset: the memory that holds the state of virtio devices
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "hw/virtio/virtio-blk.h"
#include "hw/virtio/virtio-net.h"
#include "hw/virtio/virtio-pci.h"
#include "hw/virtio/virtio-serial.h"
#include "net/net.h"
#include "net/vhost_net.h"
#include "system/block-backend.h"
#include "system/ram-reset/devices/virtio.h"

/* A guest can set only the vector of a queue that the device does not have */
static void sweep_queues(VirtIODevice *vdev, DeviceSweep *s)
{
    const char *first = (const char *)virtio_get_queue(vdev, 0);
    size_t size = (const char *)virtio_get_queue(vdev, 1) - first;
    uint16_t vectors[VIRTIO_QUEUE_MAX];

    for (int i = 0; i < VIRTIO_QUEUE_MAX; i++) {
        vectors[i] = virtio_queue_vector(vdev, i);
        if (virtio_queue_get_num(vdev, i)) {
            device_sweep(s, first + i * size, size);
        }
    }
    device_sweep(s, vectors, sizeof(vectors));
}

static void sweep_virtio(DeviceState *dev, DeviceSweep *s)
{
    VirtIODevice *vdev = VIRTIO_DEVICE(dev);

    /* The state of a vhost back end is outside of QEMU */
    device_sweep_require(s, !vdev->vhost_started && !vdev->broken);
    device_sweep(s, vdev->config, vdev->config_len);
    sweep_queues(vdev, s);
    device_sweep(s, vdev->vector_queues,
                 vdev->nvectors * sizeof(*vdev->vector_queues));
}

void device_sweep_virtio_blk(DeviceState *dev, DeviceSweep *s)
{
    VirtIOBlock *blk = VIRTIO_BLK(dev);
    bool cache = blk_enable_write_cache(blk->blk);
    VirtIODevice *vdev = VIRTIO_DEVICE(dev);

    sweep_virtio(dev, s);
    device_sweep_require(s, !blk->rq);
    /* Otherwise QEMU sets it when the VM resumes */
    if (virtio_vdev_has_feature(vdev, VIRTIO_BLK_F_CONFIG_WCE) ||
        !(vdev->status & VIRTIO_CONFIG_S_DRIVER_OK)) {
        device_sweep(s, &cache, sizeof(cache));
    }
}

static void sweep_net_client(NetClientState *nc, DeviceSweep *s)
{
    int flags[] = { nc->link_down, nc->receive_disabled };

    device_sweep_require(s, !nc->peer || !get_vhost_net(nc->peer));
    device_sweep(s, flags, sizeof(flags));
    device_sweep(s, &nc->vnet_hdr_len, sizeof(nc->vnet_hdr_len));
}

void device_sweep_virtio_net(DeviceState *dev, DeviceSweep *s)
{
    VirtIONet *net = VIRTIO_NET(dev);
    VirtioNetRssData *rss = &net->rss_data;

    sweep_virtio(dev, s);
    device_sweep_timer(s, net->announce_timer.tm);
    device_sweep_require(s, QTAILQ_EMPTY(&net->rsc_chains) &&
                            !net->failover);
    device_sweep(s, net->vqs, net->max_queue_pairs * sizeof(*net->vqs));
    device_sweep(s, net->mac_table.macs, MAC_TABLE_ENTRIES * ETH_ALEN);
    device_sweep(s, net->vlans, MAX_VLAN >> 3);
    device_sweep(s, rss->indirections_table,
                 rss->indirections_len * sizeof(*rss->indirections_table));
    for (unsigned i = 0; i < net->max_queue_pairs; i++) {
        device_sweep_timer(s, net->vqs[i].tx_timer);
        sweep_net_client(qemu_get_subqueue(net->nic, i), s);
    }
}

void device_sweep_virtio_serial(DeviceState *dev, DeviceSweep *s)
{
    VirtIOSerial *serial = VIRTIO_SERIAL(dev);
    size_t words = DIV_ROUND_UP(serial->serial.max_virtserial_ports, 32);

    sweep_virtio(dev, s);
    device_sweep(s, serial->ports_map, words * sizeof(*serial->ports_map));
}

void device_sweep_virtio_port(DeviceState *dev, DeviceSweep *s)
{
    device_sweep_require(s, !VIRTIO_SERIAL_PORT(dev)->elem);
}
