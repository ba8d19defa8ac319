/*
 * RAM reset: freeze the memory map during a load that would restore it
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "hw/pci/pci_device.h"
#include "system/ram-reset-compat.h"
#include "system/ram-reset-flags.h"
#include "system/ram-reset-rewind.h"
#include "system/ram-reset/trace.h"

/*
 * A reset unmaps each BAR, and the load of the device's state maps it again.
 * For each of them QEMU builds all address spaces again.  That takes most of
 * the time of a load if there are dozens of PCI devices.  If the present map is
 * that of the snapshot, it can stay until all devices have their state again:
 * they then find in memory the content that they will find there at the end.
 */

/* The devices' map, and the ports; a CPU's own map matters only when it runs */
typedef struct MapView {
    GArray *ranges;
    GHashTable *seen;           /* FlatView: number + 1, most are shared */
    MemoryListener listener;
} MapView;

typedef struct MapRange {
    const void *owner;          /* of the range; never dereferenced */
    uint64_t offset, at, size_low, size_high;
    uint64_t flags;
} MapRange;

static bool frozen;             /* BQL */

static void add_range(MapView *view, const void *owner, uint64_t flags)
{
    MapRange range = { .owner = owner, .flags = flags };

    g_array_append_val(view->ranges, range);
}

static void add_section(MemoryListener *listener, MemoryRegionSection *section)
{
    MapView *view = container_of(listener, MapView, listener);
    MapRange range = {
        .owner = section->mr,
        .offset = section->offset_within_region,
        .at = section->offset_within_address_space,
        .size_low = int128_getlo(section->size),
        .size_high = int128_gethi(section->size),
        .flags = section->readonly | section->nonvolatile << 1 |
                 memory_region_is_romd(section->mr) << 2,
    };

    g_array_append_val(view->ranges, range);
}

static void add_space(MapView *view, AddressSpace *as)
{
    FlatView *fv = address_space_to_flatview(as);
    uintptr_t nr = (uintptr_t)g_hash_table_lookup(view->seen, fv);

    add_range(view, as, nr);
    if (!nr) {
        nr = g_hash_table_size(view->seen) + 1;
        g_hash_table_insert(view->seen, fv, (gpointer)nr);
        memory_listener_register(&view->listener, as);
        memory_listener_unregister(&view->listener);
    }
}

static int add_device(DeviceState *dev, void *opaque)
{
    PCIDevice *pci =
        (PCIDevice *)object_dynamic_cast(OBJECT(dev), TYPE_PCI_DEVICE);

    if (pci) {
        add_space(opaque, &pci->bus_master_as);
    }
    return 0;
}

GArray *ram_reset_map_copy(void)
{
    MapView view = {
        .ranges = g_array_new(false, true, sizeof(MapRange)),
        .seen = g_hash_table_new(NULL, NULL),
        .listener = { .name = "ram-reset-map", .region_add = add_section },
    };

    RCU_READ_LOCK_GUARD();
    add_space(&view, &address_space_memory);
    add_space(&view, &address_space_io);
    qbus_walk_children(sysbus_get_default(), add_device, NULL, NULL, NULL,
                       &view);
    g_hash_table_unref(view.seen);
    return view.ranges;
}

static bool is_same_map(const GArray *map)
{
    g_autoptr(GArray) now = ram_reset_map_copy();

    return now->len == map->len &&
           !memcmp(now->data, map->data, now->len * sizeof(MapRange));
}

/*
 * A device closes an ioeventfd as soon as QEMU's memory core should have
 * removed it from KVM.  If the map is frozen, the core removes it only at the
 * thaw, and QEMU would abort.  The next ioeventfd at that address would look
 * the same, and never get to KVM.  vm_stop() leaves none to virtio, but a
 * device that is driven from outside may start one afterwards.
 */
static bool has_ioeventfds(void)
{
    return address_space_memory.ioeventfd_nb || address_space_io.ioeventfd_nb;
}

bool ram_reset_map_freeze(const GArray *map)
{
    /* The start of the dirty log is a change of the map, too */
    bool starts_log = ram_reset_rewind_wanted() && !ram_reset_flags.tracking;

    frozen = map && !starts_log && !has_ioeventfds() && is_same_map(map);
    trace_ram_reset_freeze_map(map != NULL, frozen);
    if (frozen) {
        memory_region_transaction_begin();
    }
    return frozen;
}

void ram_reset_map_thaw(void)
{
    if (frozen) {
        frozen = false;
        memory_region_transaction_commit();
    }
}
