/*
 * RAM reset: the memory that holds the state of virtio devices
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef RAM_RESET_DEVICES_VIRTIO_H
#define RAM_RESET_DEVICES_VIRTIO_H

#include "system/ram-reset/devices/sweep.h"

/* For DeviceKind.  NULL in a QEMU without virtio: it has no such device. */
__attribute__((weak))
void device_sweep_virtio_blk(DeviceState *dev, DeviceSweep *s);
__attribute__((weak))
void device_sweep_virtio_net(DeviceState *dev, DeviceSweep *s);
__attribute__((weak))
void device_sweep_virtio_serial(DeviceState *dev, DeviceSweep *s);
__attribute__((weak))
void device_sweep_virtio_port(DeviceState *dev, DeviceSweep *s);

#endif
