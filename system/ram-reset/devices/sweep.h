/*
 * RAM reset: a walk over the memory that a device's state is in
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef RAM_RESET_DEVICES_SWEEP_H
#define RAM_RESET_DEVICES_SWEEP_H

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
 * device_field: where @dev has a field of its VM state; NULL if it has not
 */
void *device_field(DeviceState *dev, const char *name);

#endif
