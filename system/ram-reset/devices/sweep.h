/*
 * RAM reset: a walk over the memory that holds a device's state
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef RAM_RESET_DEVICES_SWEEP_H
#define RAM_RESET_DEVICES_SWEEP_H

#include "system/ram-reset-compat.h"

/**
 * DeviceSweep: a walk over that memory, to copy or to compare it
 *
 * @copy: the earlier content; NULL to compare nothing
 * @length: bytes of @copy
 * @at: bytes that the walk has passed
 * @into: receives the copy; NULL to copy nothing
 * @ok: so far, the memory is equal to @copy, and the device waits for nothing
 */
typedef struct DeviceSweep {
    const uint8_t *copy;
    size_t length, at;
    GByteArray *into;
    bool ok;
} DeviceSweep;

/**
 * device_sweep: walk over @length bytes at @memory, which may be NULL
 */
void device_sweep(DeviceSweep *s, const void *memory, size_t length);

/**
 * device_sweep_timer: require that @timer is not pending, since a load of the
 * device would set it again.  @timer may be NULL.
 */
void device_sweep_timer(DeviceSweep *s, QEMUTimer *timer);

/**
 * device_sweep_require: load the device if @condition is false
 */
void device_sweep_require(DeviceSweep *s, bool condition);

/**
 * device_field: the address of the field @name of the VM state of @dev; NULL if
 * there is no such field
 */
void *device_field(DeviceState *dev, const char *name);

#endif
