/*
 * RAM reset: a walk over the memory that holds a device's state
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/timer.h"
#include "migration/vmstate.h"
#include "system/ram-reset/devices/sweep.h"

void device_sweep(DeviceSweep *s, const void *memory, size_t length)
{
    if (s->into && memory) {
        g_byte_array_append(s->into, memory, length);
    } else if (!s->into && s->ok) {
        s->ok = memory ? s->at + length <= s->length &&
                         !memcmp(memory, s->copy + s->at, length)
                       : s->ok;
    }
    s->at += memory ? length : 0;
}

void device_sweep_timer(DeviceSweep *s, QEMUTimer *timer)
{
    device_sweep_require(s, !timer || !timer_pending(timer));
}

void device_sweep_require(DeviceSweep *s, bool condition)
{
    s->ok &= condition;
}

void *device_field(DeviceState *dev, const char *name)
{
    const VMStateField *f = qdev_get_vmsd(dev)->fields;

    while (f->name && strcmp(f->name, name)) {
        f++;
    }
    return f->name ? (char *)dev + f->offset : NULL;
}
