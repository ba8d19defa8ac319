/*
 * RAM reset: the known classes of devices, and the places of their state
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef RAM_RESET_DEVICES_KINDS_H
#define RAM_RESET_DEVICES_KINDS_H

#include "system/ram-reset/devices/sweep.h"

/**
 * DeviceKind: the properties of a known class of devices
 *
 * @type: name of the class
 * @size: size of an instance in bytes, if it may lie in another object; 0 if it
 *     has an allocation of its own, or lies in the device that it is a part of
 * @holes: offsets of the first byte and behind the last byte of parts that are
 *     not compared: other devices, and members that the guest cannot see
 * @holes_in: field of the VM state that @holes are offsets in; NULL for the
 *     instance
 * @inner: the device is compared together with the device that it is a part of
 * @sweep: walks over the state outside of the instance and, for PCI devices,
 *     outside of configuration space and MSI-X table; may be NULL
 * @renew: has the effects of a reset and a load outside of the device, see
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
 * device_kind: the kind of @dev; NULL if its class is not known
 */
const DeviceKind *device_kind(DeviceState *dev);

/**
 * device_problem: the reason why @dev is loaded with each load: its class is
 * not known, its layout differs from the known one, or a self-check has failed
 *
 * Returns: NULL if it need not be loaded
 */
const char *device_problem(DeviceState *dev);

/**
 * device_is_known: whether @dev has no problem
 */
bool device_is_known(DeviceState *dev);

#endif
