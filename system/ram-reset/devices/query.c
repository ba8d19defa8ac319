/*
 * RAM reset: the devices that each load loads
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qapi/error.h"
#include "qapi/util.h"
#include "system/ram-reset-devices.h"
#include "system/ram-reset-rewind.h"
#include "system/ram-reset/devices/kinds.h"
#include "system/ram-reset/devices/parts.h"

/* A device counts once, with its parts */
typedef struct Walk {
    GHashTable *seen;           /* DeviceState, visited or a part of one */
    unsigned count;
    RamResetLoadedDevicesList *loaded;
} Walk;

static bool is_loaded(const GPtrArray *parts)
{
    for (int i = 0; i < parts->len; i++) {
        if (qdev_get_vmsd(g_ptr_array_index(parts, i))) {
            return true;
        }
    }
    return false;
}

/* False with @errp set if each load loads @parts */
static bool may_be_unchanged(const GPtrArray *parts, Error **errp)
{
    DeviceState *dev = g_ptr_array_index(parts, 0);
    DeviceState *unknown = device_find_unknown(parts);

    if (unknown == dev) {
        error_setg(errp, "%s", device_problem(dev));
        return false;
    }
    if (unknown) {
        error_setg(errp, "its part '%s': %s",
                   object_get_typename(OBJECT(unknown)),
                   device_problem(unknown));
        return false;
    }
    if (device_kind(dev)->inner) {
        error_setg(errp, "RAM reset knows the class as a part of others only");
        return false;
    }
    if (!ram_reset_unchanged_devices_wanted()) {
        error_setg(errp, "an object has unchanged-devices=off");
        return false;
    }
    return true;
}

static RamResetLoadedDevices *find_entry(Walk *walk, const char *type,
                                         const char *reason)
{
    RamResetLoadedDevicesList *l = walk->loaded;

    while (l && (strcmp(l->value->q_class, type) ||
                 strcmp(l->value->reason, reason))) {
        l = l->next;
    }
    return l ? l->value : NULL;
}

static void add_loaded(Walk *walk, DeviceState *dev, const char *reason)
{
    const char *type = object_get_typename(OBJECT(dev));
    RamResetLoadedDevices *entry = find_entry(walk, type, reason);

    if (!entry) {
        entry = g_new0(RamResetLoadedDevices, 1);
        entry->q_class = g_strdup(type);
        entry->reason = g_strdup(reason);
        QAPI_LIST_PREPEND(walk->loaded, entry);
    }
    entry->count++;
}

static int visit_device(DeviceState *dev, void *opaque)
{
    Walk *walk = opaque;
    g_autoptr(GPtrArray) parts = NULL;
    Error *err = NULL;

    if (g_hash_table_contains(walk->seen, dev)) {
        return 0;
    }
    parts = device_parts(dev);
    for (int i = 0; i < parts->len; i++) {
        g_hash_table_add(walk->seen, g_ptr_array_index(parts, i));
    }
    if (is_loaded(parts)) {
        walk->count++;
        if (!may_be_unchanged(parts, &err)) {
            add_loaded(walk, dev, error_get_pretty(err));
            error_free(err);
        }
    }
    return 0;
}

static Walk walk_devices(void)
{
    Walk walk = { .seen = g_hash_table_new(NULL, NULL) };

    qbus_walk_children(sysbus_get_default(), visit_device, NULL, NULL, NULL,
                       &walk);
    g_hash_table_unref(walk.seen);
    return walk;
}

/* BQL.  0 before the count */
static unsigned count;

static void devices_changed(DeviceListener *listener, DeviceState *dev)
{
    count = 0;
}

unsigned ram_reset_devices_count(void)
{
    static DeviceListener listener = {
        .realize = devices_changed, .unrealize = devices_changed,
    };

    if (!listener.link.tqe_circ.tql_prev) {
        device_listener_register(&listener);
    }
    if (!count) {
        Walk walk = walk_devices();

        qapi_free_RamResetLoadedDevicesList(walk.loaded);
        count = walk.count;
    }
    return count;
}

RamResetLoadedDevicesList *ram_reset_query_loaded_devices(void)
{
    return walk_devices().loaded;
}
