/*
 * RAM reset: in a QEMU without virtio
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "system/ram-reset/devices/virtio.h"

void device_sweep_virtio_blk(DeviceState *dev, DeviceSweep *s)
{
    g_assert_not_reached();
}

void device_sweep_virtio_net(DeviceState *dev, DeviceSweep *s)
{
    g_assert_not_reached();
}

void device_sweep_virtio_serial(DeviceState *dev, DeviceSweep *s)
{
    g_assert_not_reached();
}

void device_sweep_virtio_port(DeviceState *dev, DeviceSweep *s)
{
    g_assert_not_reached();
}
