/*
 * RAM reset: devices that register a function to be reset by
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include <malloc.h>
#include "system/ram-reset/devices/legacy.h"
#include "system/ram-reset/devices/memory.h"

/* QEMU makes an object of it, which is in no tree, and has the argument */
#define TYPE_LEGACY_RESET "legacy-reset"

/* BQL */
static struct {
    ResettableHoldPhase reset;  /* what the class had; NULL if not replaced */
    GPtrArray *held;            /* DeviceState */
} legacy;

static bool is_part_of(const void *memory, DeviceState *dev)
{
    uintptr_t start = (uintptr_t)dev;

    return (uintptr_t)memory >= start &&
           (uintptr_t)memory - start < device_size(dev);
}

/* A class struct of QEMU's is ours to look at, but an instance is not */
static bool has_pointer_into(Object *obj, DeviceState *dev)
{
    void **words = (void **)obj;
    size_t size = malloc_usable_size(obj);

    for (size_t i = DIV_ROUND_UP(sizeof(*obj), sizeof(void *));
         i < size / sizeof(void *); i++) {
        if (is_part_of(words[i], dev)) {
            return true;
        }
    }
    return false;
}

static void reset_unless_held(Object *obj, ResetType type)
{
    for (int i = 0; legacy.held && i < legacy.held->len; i++) {
        if (has_pointer_into(obj, g_ptr_array_index(legacy.held, i))) {
            return;
        }
    }
    legacy.reset(obj, type);
}

void legacy_reset_hold(DeviceState *dev)
{
    if (!legacy.reset) {
        ResettableClass *rc =
            RESETTABLE_CLASS(object_class_by_name(TYPE_LEGACY_RESET));

        legacy.reset = rc->phases.hold;
        rc->phases.hold = reset_unless_held;
    }
    legacy.held = legacy.held ?: g_ptr_array_new();
    g_ptr_array_add(legacy.held, dev);
}

void legacy_reset_release(void)
{
    g_clear_pointer(&legacy.held, g_ptr_array_unref);
}
