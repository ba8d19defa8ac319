/*
 * RAM reset: devices with their parts
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "system/ram-reset/devices/kinds.h"
#include "system/ram-reset/devices/parts.h"

/* Other buses have devices that are reset and loaded by themselves */
static bool is_part_of_its_device(BusState *bus)
{
    static const char *const types[] = {
        "virtio-bus", "virtio-serial-bus", "usb-bus", "IDE",
    };

    for (int i = 0; i < ARRAY_SIZE(types); i++) {
        if (object_dynamic_cast(OBJECT(bus), types[i])) {
            return true;
        }
    }
    return false;
}

static void add_parts(GPtrArray *parts, DeviceState *dev);

static int add_inner(Object *obj, void *opaque)
{
    DeviceState *dev = (DeviceState *)object_dynamic_cast(obj, TYPE_DEVICE);

    if (dev && !dev->parent_bus) {
        add_parts(opaque, dev);
    }
    return 0;
}

static void add_parts(GPtrArray *parts, DeviceState *dev)
{
    BusState *bus;
    BusChild *child;

    g_ptr_array_add(parts, object_ref(OBJECT(dev)));
    object_child_foreach(OBJECT(dev), add_inner, parts);
    QLIST_FOREACH(bus, &dev->child_bus, sibling) {
        if (is_part_of_its_device(bus)) {
            QTAILQ_FOREACH(child, &bus->children, sibling) {
                add_parts(parts, child->child);
            }
        }
    }
}

GPtrArray *device_parts(DeviceState *dev)
{
    GPtrArray *parts = g_ptr_array_new_with_free_func(object_unref);

    add_parts(parts, dev);
    return parts;
}

DeviceState *device_find_unknown(const GPtrArray *parts)
{
    for (int i = 0; i < parts->len; i++) {
        DeviceState *dev = g_ptr_array_index(parts, i);

        if (!device_is_known(dev)) {
            return dev;
        }
    }
    return NULL;
}
