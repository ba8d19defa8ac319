/*
 * RAM reset: unchanged devices, which a load neither resets nor loads
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "hw/pci/msi.h"
#include "hw/pci/msix.h"
#include "hw/pci/pci_bus.h"
#include "hw/pci/pci_device.h"
#include "migration/vmstate.h"
#include "system/ram-reset.h"
#include "system/ram-reset-devices.h"
#include "system/ram-reset/devices/kinds.h"
#include "system/ram-reset/devices/memory.h"
#include "system/ram-reset/devices/parts.h"
#include "system/ram-reset/trace.h"

/*
 * A device with its parts, which are unchanged together or not at all.  A
 * device on a PCI bus below it is a unit of its own.
 */
typedef struct Unit {
    GPtrArray *devices;         /* DeviceState, with a reference */
    PCIDevice *pci;             /* the first of them, if it is a PCI device */
    bool known;                 /* all places of their state */
    GArray *pieces;             /* of their memory; NULL if not known */
    GByteArray *copy;           /* since the last load; NULL if there is none */
    GPtrArray *sections;        /* in the VM state; NULL before the search */
    bool config_saved;          /* the VM state has the configuration space */
    bool checked;               /* the self-check has succeeded */
    bool unchanged;
} Unit;

/* BQL */
static struct {
    GPtrArray *units;           /* NULL before the search */
    GPtrArray *buses;           /* PCIBus */
    GPtrArray *skipped;         /* Objects that a reset skips, referenced */
    bool buses_skipped, map_changed;
    bool distrusted;            /* a class, since units were compared */
    bool stale;                 /* search again after the reset */
} all;

static void free_unit(gpointer p)
{
    Unit *u = p;

    g_ptr_array_unref(u->devices);
    if (u->pieces) {
        g_array_unref(u->pieces);
    }
    if (u->copy) {
        g_byte_array_unref(u->copy);
    }
    if (u->sections) {
        g_ptr_array_unref(u->sections);
    }
    g_free(u);
}

static bool is_pci(DeviceState *dev)
{
    return object_dynamic_cast(OBJECT(dev), TYPE_PCI_DEVICE);
}

static int add_unit(DeviceState *dev, void *opaque)
{
    Unit *u;

    if (is_pci(dev) || (device_is_known(dev) && !device_kind(dev)->inner)) {
        u = g_new0(Unit, 1);
        u->devices = device_parts(dev);
        u->pci = is_pci(dev) ? PCI_DEVICE(dev) : NULL;
        u->known = !device_find_unknown(u->devices);
        u->pieces = u->known ? device_pieces(u->devices) : NULL;
        g_ptr_array_add(all.units, u);
    }
    return 0;
}

static int add_bus(BusState *bus, void *opaque)
{
    if (object_dynamic_cast(OBJECT(bus), TYPE_PCI_BUS)) {
        g_ptr_array_add(all.buses, bus);
    }
    return 0;
}

/* A reset may complete a requested unplug */
static void devices_drop_all(DeviceListener *listener, DeviceState *dev)
{
    if (all.skipped) {
        all.stale = true;
    } else {
        ram_reset_devices_drop_copy();
    }
}

static void find_units(void)
{
    static DeviceListener listener = {
        .realize = devices_drop_all, .unrealize = devices_drop_all,
    };

    /*
     * Its listener comes first: a registration calls all listeners, and ours
     * drops the units
     */
    ram_reset_devices_count();
    if (!listener.link.tqe_circ.tql_prev) {
        device_listener_register(&listener);
    }
    all.units = g_ptr_array_new_with_free_func(free_unit);
    all.buses = g_ptr_array_new();
    qbus_walk_children(sysbus_get_default(), add_unit, add_bus, NULL, NULL,
                       NULL);
}

static bool sweep_unit(Unit *u, GByteArray *into)
{
    DeviceSweep s = { .into = into, .ok = true };

    if (!into) {
        s.copy = u->copy->data;
        s.length = u->copy->len;
    }
    for (int i = 0; i < u->pieces->len; i++) {
        DevicePiece *piece = &g_array_index(u->pieces, DevicePiece, i);

        device_sweep(&s, piece->start, piece->end - piece->start);
    }
    for (int i = 0; i < u->devices->len; i++) {
        device_sweep_rest(g_ptr_array_index(u->devices, i), &s);
    }
    return s.ok && (into || s.at == s.length);
}

void ram_reset_devices_drop_copy(void)
{
    g_clear_pointer(&all.units, g_ptr_array_unref);
    g_clear_pointer(&all.buses, g_ptr_array_unref);
}

/* Devices have pointers into QEMU's compiled form of the map */
static void devices_map_changed(MemoryListener *listener)
{
    all.map_changed = true;
}

static void watch_map(void)
{
    static MemoryListener listener = {
        .name = "ram-reset-devices", .commit = devices_map_changed,
    };

    if (!listener.address_space) {
        memory_listener_register(&listener, &address_space_memory);
    }
}

void ram_reset_devices_copy(void)
{
    watch_map();
    if (!all.units) {
        find_units();
    }
    for (int i = 0; i < all.units->len; i++) {
        Unit *u = g_ptr_array_index(all.units, i);

        if (!u->known || (u->unchanged && !all.map_changed)) {
            continue;
        }
        u->copy = u->copy ?: g_byte_array_new();
        g_byte_array_set_size(u->copy, 0);
        if (!sweep_unit(u, u->copy)) {
            g_clear_pointer(&u->copy, g_byte_array_unref);
        }
    }
}

static bool has_sections(Unit *u, const RamResetSections *stream)
{
    if (u->sections) {
        return true;
    }
    u->sections = g_ptr_array_new();
    for (int i = 0; i < u->devices->len; i++) {
        DeviceState *dev = g_ptr_array_index(u->devices, i);
        const VMStateDescription *vmsd = qdev_get_vmsd(dev);
        void *section = vmsd ? stream->find(stream->opaque, VMSTATE_IF(dev),
                                             vmsd->name) : NULL;

        if (section) {
            g_ptr_array_add(u->sections, section);
        } else if (vmsd) {
            u->known = false;
            return false;
        }
    }
    return true;
}

/* Before @u is left alone for the first time, compare it with its sections */
static bool self_check(Unit *u, const RamResetSections *stream)
{
    for (int i = 0, n = 0; !u->checked && i < u->devices->len; i++) {
        DeviceState *dev = g_ptr_array_index(u->devices, i);

        if (qdev_get_vmsd(dev) &&
            !stream->check(dev, g_ptr_array_index(u->sections, n++))) {
            all.distrusted = true;
            return false;
        }
    }
    if (!u->checked) {
        /* Saving a device may change members that follow from its state */
        g_byte_array_set_size(u->copy, 0);
        u->checked = sweep_unit(u, u->copy);
    }
    return u->checked;
}

static bool is_unchanged(Unit *u, const RamResetSections *stream)
{
    return u->known && u->copy && sweep_unit(u, NULL) &&
           has_sections(u, stream) && self_check(u, stream);
}

/* BARs and interrupt then stay until the configuration space is loaded */
static bool can_do_without_bus(Unit *u, const RamResetSections *stream)
{
    DeviceState *dev = u->config_saved ? NULL
                                       : device_saves_config(u->pci);
    const VMStateDescription *vmsd = dev ? qdev_get_vmsd(dev) : NULL;

    if (vmsd && stream->find(stream->opaque, VMSTATE_IF(dev), vmsd->name)) {
        u->config_saved = true;
    }
    return u->config_saved && !u->pci->irq_state && !u->pci->exp.sriov_cap;
}

static void skip_reset(gpointer obj, gpointer opaque)
{
    RESETTABLE_GET_CLASS(obj)->get_state(obj)->count++;
    g_ptr_array_add(all.skipped, object_ref(OBJECT(obj)));
}

static bool can_skip_buses(const RamResetSections *stream)
{
    for (int i = 0; i < all.units->len; i++) {
        Unit *u = g_ptr_array_index(all.units, i);

        if (u->pci && !u->unchanged && !can_do_without_bus(u, stream)) {
            return false;
        }
    }
    return true;
}

/* A self-check that fails is about all devices of the class */
static void drop_unknown(void)
{
    for (int i = 0; all.distrusted && i < all.units->len; i++) {
        Unit *u = g_ptr_array_index(all.units, i);

        u->known &= !device_find_unknown(u->devices);
        u->unchanged &= u->known;
    }
    all.distrusted = false;
}

static void skip_unit(Unit *u, const RamResetSections *stream)
{
    g_ptr_array_foreach(u->devices, skip_reset, NULL);
    g_ptr_array_foreach(u->sections, stream->leave_out, stream->opaque);
}

bool ram_reset_is_unchanged(const void *opaque)
{
    for (int i = 0; all.skipped && i < all.units->len; i++) {
        Unit *u = g_ptr_array_index(all.units, i);

        if (u->unchanged && device_memory_has(u->devices, u->pieces, opaque)) {
            return true;
        }
    }
    return false;
}

unsigned ram_reset_devices_begin_reset(bool map,
                                       const RamResetSections *stream)
{
    unsigned nr = 0;

    if (!all.units) {
        return 0;
    }
    all.skipped = g_ptr_array_new_with_free_func(object_unref);
    all.map_changed = false;
    for (int i = 0; i < all.units->len; i++) {
        Unit *u = g_ptr_array_index(all.units, i);

        u->unchanged = (map || !u->pci) && is_unchanged(u, stream);
    }
    drop_unknown();
    all.buses_skipped = map && can_skip_buses(stream);
    if (all.buses_skipped) {
        g_ptr_array_foreach(all.buses, skip_reset, NULL);
    }
    for (int i = 0; i < all.units->len; i++) {
        Unit *u = g_ptr_array_index(all.units, i);

        u->unchanged &= all.buses_skipped || !u->pci;
        if (u->unchanged) {
            skip_unit(u, stream);
            nr++;
        }
    }
    return nr;
}

/* The reset of a PCI bus also does this for each device */
static void reset_msi(Unit *u)
{
    if (u->pci && !u->unchanged && qdev_is_realized(DEVICE(u->pci))) {
        msi_reset(u->pci);
        msix_reset(u->pci);
    }
}

static void renew_unit(Unit *u)
{
    for (int i = 0; i < u->devices->len; i++) {
        DeviceState *dev = g_ptr_array_index(u->devices, i);

        if (device_kind(dev)->renew) {
            device_kind(dev)->renew(dev);
        }
    }
}

void ram_reset_devices_renew(void)
{
    for (int i = 0; all.skipped && i < all.units->len; i++) {
        Unit *u = g_ptr_array_index(all.units, i);

        if (u->unchanged) {
            renew_unit(u);
        }
    }
}

bool ram_reset_devices_end_reset(void)
{
    if (!all.skipped) {
        return true;
    }
    for (int i = 0; i < all.skipped->len; i++) {
        Object *obj = g_ptr_array_index(all.skipped, i);

        RESETTABLE_GET_CLASS(obj)->get_state(obj)->count--;
    }
    for (int i = 0; all.buses_skipped && i < all.units->len; i++) {
        reset_msi(g_ptr_array_index(all.units, i));
    }
    g_clear_pointer(&all.skipped, g_ptr_array_unref);
    if (all.stale) {
        all.stale = false;
        ram_reset_devices_drop_copy();
        return false;
    }
    return true;
}
