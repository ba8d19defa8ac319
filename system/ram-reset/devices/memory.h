/*
 * RAM reset: the memory of QEMU that holds a device's state
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef RAM_RESET_DEVICES_MEMORY_H
#define RAM_RESET_DEVICES_MEMORY_H

#include "system/ram-reset/devices/sweep.h"

/**
 * device_saves_config: the device whose section has the configuration space of
 * @pci; NULL if there is none
 */
DeviceState *device_saves_config(PCIDevice *pci);

/**
 * device_pieces: the parts of the instances of @devices that are compared
 *
 * Returns: an array of DevicePiece, owned by the caller
 */
GArray *device_pieces(GPtrArray *devices);

typedef struct DevicePiece {
    const uint8_t *start, *end;
} DevicePiece;

/**
 * device_memory_has: whether @p points into one of @devices, which have @pieces
 */
bool device_memory_has(GPtrArray *devices, GArray *pieces, const void *p);

/**
 * device_sweep_rest: walk over the state of @dev outside of its instance
 */
void device_sweep_rest(DeviceState *dev, DeviceSweep *s);

#endif
