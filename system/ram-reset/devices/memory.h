/*
 * RAM reset: the memory of QEMU's that a device's state is in
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef RAM_RESET_DEVICES_MEMORY_H
#define RAM_RESET_DEVICES_MEMORY_H

#include "system/ram-reset-compat.h"

/**
 * DeviceSweep: a walk over that memory, to copy or to compare it
 *
 * @copy: what it had; NULL to compare nothing
 * @length: of @copy
 * @at: how far the walk has come
 * @into: to be written; NULL if nothing is to be copied
 * @ok: so far, the memory is as in @copy and the device is waiting for nothing
 */
typedef struct DeviceSweep {
    const uint8_t *copy;
    size_t length, at;
    GByteArray *into;
    bool ok;
} DeviceSweep;

/**
 * device_sweep: @length bytes at @memory are part of it; they may be NULL
 */
void device_sweep(DeviceSweep *s, const void *memory, size_t length);

/**
 * device_sweep_timer: a timer of the device's, which may be NULL; a device is
 * not kept while one is pending, as loading it would set the timer anew
 */
void device_sweep_timer(DeviceSweep *s, QEMUTimer *timer);

/**
 * device_sweep_require: if @condition is false, the device is not kept
 */
void device_sweep_require(DeviceSweep *s, bool condition);

/**
 * DeviceKind: what is known of a class of devices
 *
 * @type: its name
 * @size: of an instance that may lie in another object; 0 if it does not, or
 *     in that of a device that it is a part of
 * @holes: from where to where the instance is not to be looked at, being another
 *     device, or nothing that the guest could see
 * @holes_in: what these are offsets in: a field of the VM state; NULL for the
 *     instance
 * @fields_only: of the instance, only the fields of the VM state are looked at,
 *     by @sweep; all of them are plain
 * @inner: it is looked at with the device that it is a part of
 * @legacy: it registers a function to be reset by, for a part of its instance
 * @sweep: for what the device has beside its instance and, for PCI devices, its
 *     configuration space and MSI-X table; may be NULL
 */
typedef struct DeviceKind {
    const char *type;
    size_t size, holes[3][2];
    const char *holes_in;
    bool fields_only, inner, legacy;
    void (*sweep)(DeviceState *dev, DeviceSweep *s);
} DeviceKind;

/**
 * device_kind: of @dev; NULL if nothing is known
 */
const DeviceKind *device_kind(DeviceState *dev);

/**
 * device_field: where @dev has a field of its VM state; NULL if it has not
 */
const void *device_field(DeviceState *dev, const char *name);

/**
 * device_size: of @dev's instance; 0 if it is in that of another device
 */
size_t device_size(DeviceState *dev);

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
 * device_sweep_rest: walk over what @dev has beside its instance
 */
void device_sweep_rest(DeviceState *dev, DeviceSweep *s);

#endif
