/*
 * RAM reset: the memory of QEMU's that a device's state is in
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef RAM_RESET_DEVICES_MEMORY_H
#define RAM_RESET_DEVICES_MEMORY_H

#include "system/ram-reset/devices/sweep.h"

/**
 * device_saves_config: the device whose section has the configuration space of
 * @pci; NULL if none has
 */
DeviceState *device_saves_config(PCIDevice *pci);

/**
 * device_pieces: what there is to look at of the instances of @devices
 *
 * Returns: an array of DevicePiece, to be freed
 */
GArray *device_pieces(GPtrArray *devices);

typedef struct DevicePiece {
    const uint8_t *start, *end;
} DevicePiece;

/**
 * device_memory_has: whether @p points into one of @devices; @pieces are theirs
 */
bool device_memory_has(GPtrArray *devices, GArray *pieces, const void *p);

/**
 * device_sweep_rest: walk over what @dev has beside its instance
 */
void device_sweep_rest(DeviceState *dev, DeviceSweep *s);

#endif
