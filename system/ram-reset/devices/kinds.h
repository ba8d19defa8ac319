/*
 * RAM reset: which devices may be kept, and what their state is in
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef RAM_RESET_DEVICES_KINDS_H
#define RAM_RESET_DEVICES_KINDS_H

#include "system/ram-reset/devices/sweep.h"

/**
 * DeviceKind: what is known of a class of devices
 *
 * @type: its name
 * @size: of an instance that may lie in another object; 0 if it does not, or
 *     in that of a device that it is a part of
 * @holes: from where to where the instance is not to be looked at, being
 *     another device, or nothing that the guest could see
 * @holes_in: what these are offsets in: a field of the VM state; NULL for the
 *     instance
 * @inner: it is looked at with the device that it is a part of
 * @sweep: for what the device has beside its instance and, for PCI devices, its
 *     configuration space and MSI-X table; may be NULL
 * @renew: what a reset and a load do that is not the device's own, see
 *     devices/renew.h; may be NULL
 */
typedef struct DeviceKind {
    const char *type;
    size_t size, holes[3][2];
    const char *holes_in;
    bool inner;
    void (*sweep)(DeviceState *dev, DeviceSweep *s);
    void (*renew)(DeviceState *dev);
} DeviceKind;

/**
 * device_kind: of @dev; NULL if nothing is known
 */
const DeviceKind *device_kind(DeviceState *dev);

/**
 * device_problem: why @dev is loaded with each load: its class is not known, its
 * memory is not the one that was read, or a self-check of its class has failed
 *
 * Returns: NULL if it need not be loaded
 */
const char *device_problem(DeviceState *dev);

/**
 * device_is_known: @dev has no problem
 */
bool device_is_known(DeviceState *dev);

#endif
