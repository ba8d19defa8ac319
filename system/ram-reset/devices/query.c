/*
 * RAM reset: which devices a load has to load
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qapi/util.h"
#include "system/ram-reset-devices.h"
#include "system/ram-reset/devices/kinds.h"
#include "system/ram-reset/devices/parts.h"

/* A device with its parts is one device here */
typedef struct Walk {
    GHashTable *seen;           /* DeviceState: it, or what it is a part of */
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

/* Why @parts are loaded each time, owned by the caller; NULL if they are not */
static char *find_reason(const GPtrArray *parts)
{
    DeviceState *dev = g_ptr_array_index(parts, 0);
    DeviceState *unknown = device_find_unknown(parts);

    if (unknown == dev) {
        return g_strdup(device_problem(dev));
    }
    if (unknown) {
        return g_strdup_printf("its part '%s': %s",
                               object_get_typename(OBJECT(unknown)),
                               device_problem(unknown));
    }
    if (device_kind(dev)->inner) {
        return g_strdup("RAM reset knows the class as a part of others only");
    }
    return NULL;
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
    g_autofree char *reason = NULL;

    if (g_hash_table_contains(walk->seen, dev)) {
        return 0;
    }
    parts = device_parts(dev);
    for (int i = 0; i < parts->len; i++) {
        g_hash_table_add(walk->seen, g_ptr_array_index(parts, i));
    }
    if (is_loaded(parts)) {
        walk->count++;
        reason = find_reason(parts);
    }
    if (reason) {
        add_loaded(walk, dev, reason);
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

/* BQL.  0: to be counted */
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
