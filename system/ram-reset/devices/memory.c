/*
 * RAM reset: the memory of QEMU that holds a device's state
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include <malloc.h>
#include "hw/pci/msix.h"
#include "hw/pci/pci_device.h"
#include "migration/vmstate.h"
#include "system/ram-reset/devices/kinds.h"
#include "system/ram-reset/devices/memory.h"

static void sweep_pci(PCIDevice *pci, DeviceSweep *s)
{
    unsigned vectors = pci->msix_entries_nr;

    device_sweep(s, pci->config, pci_config_size(pci));
    if (msix_present(pci)) {
        device_sweep(s, pci->msix_table, vectors * PCI_MSIX_ENTRY_SIZE);
        device_sweep(s, pci->msix_pba, QEMU_ALIGN_UP(vectors, 64) / 8);
        device_sweep(s, pci->msix_entry_used,
                     vectors * sizeof(*pci->msix_entry_used));
    }
}

/* Size of the instance in bytes; 0 if it lies in that of another device */
static size_t device_size(DeviceState *dev)
{
    Object *obj = OBJECT(dev);
    size_t size = device_kind(dev)->size;

    /* QEMU does not know the size; the allocation may have some bytes more */
    return size ?: obj->free ? malloc_usable_size(obj) : 0;
}

DeviceState *device_saves_config(PCIDevice *pci)
{
    const VMStateDescription *vmsd = qdev_get_vmsd(DEVICE(pci));
    const VMStateField *f = vmsd ? vmsd->fields : NULL;
    BusState *bus = QLIST_FIRST(&DEVICE(pci)->child_bus);
    BusChild *child = bus ? QTAILQ_FIRST(&bus->children) : NULL;

    if (object_dynamic_cast(OBJECT(pci), "virtio-pci")) {
        return child ? child->child : NULL;
    }
    while (f && f->name && f->vmsd != &vmstate_pci_device) {
        f++;
    }
    return f && f->name ? DEVICE(pci) : NULL;
}

static int by_start(gconstpointer a, gconstpointer b)
{
    const DevicePiece *x = a, *y = b;

    return x->start < y->start ? -1 : x->start > y->start;
}

static void add_hole(GArray *holes, const uint8_t *start, const uint8_t *end)
{
    DevicePiece hole = { start, end };

    g_array_append_val(holes, hole);
}

/* The parts of @devices that are not compared, in order */
static GArray *find_holes(GPtrArray *devices)
{
    GArray *holes = g_array_new(false, false, sizeof(DevicePiece));

    for (int i = 0; i < devices->len; i++) {
        DeviceState *dev = g_ptr_array_index(devices, i);
        const uint8_t *start = (const uint8_t *)dev;
        const DeviceKind *kind = device_kind(dev);

        /* The number of references to it changes */
        add_hole(holes, start, start + sizeof(Object));
        start = kind->holes_in ? device_field(dev, kind->holes_in) : start;
        for (int j = 0; j < ARRAY_SIZE(kind->holes) && kind->holes[j][1]; j++) {
            add_hole(holes, start + kind->holes[j][0],
                     start + kind->holes[j][1]);
        }
    }
    g_array_sort(holes, by_start);
    return holes;
}

GArray *device_pieces(GPtrArray *devices)
{
    GArray *pieces = g_array_new(false, false, sizeof(DevicePiece));
    g_autoptr(GArray) holes = find_holes(devices);

    for (int i = 0; i < devices->len; i++) {
        const uint8_t *start = g_ptr_array_index(devices, i);
        DeviceState *dev = (DeviceState *)start;
        const uint8_t *end = start + device_size(dev);
        DevicePiece piece = { start, start };

        for (int j = 0; piece.end < end && j < holes->len; j++) {
            DevicePiece *hole = &g_array_index(holes, DevicePiece, j);

            if (hole->start >= piece.start && hole->end <= end) {
                piece.end = hole->start;
                g_array_append_val(pieces, piece);
                piece.start = piece.end = hole->end;
            }
        }
        piece.end = MAX(piece.start, end);
        g_array_append_val(pieces, piece);
    }
    return pieces;
}

bool device_memory_has(GPtrArray *devices, GArray *pieces, const void *p)
{
    /* A device begins with a hole */
    bool found = g_ptr_array_find(devices, p, NULL);

    for (int i = 0; !found && i < pieces->len; i++) {
        DevicePiece *piece = &g_array_index(pieces, DevicePiece, i);

        found = (const uint8_t *)p >= piece->start &&
                (const uint8_t *)p < piece->end;
    }
    return found;
}

void device_sweep_rest(DeviceState *dev, DeviceSweep *s)
{
    const DeviceKind *kind = device_kind(dev);
    Object *pci = object_dynamic_cast(OBJECT(dev), TYPE_PCI_DEVICE);

    if (pci) {
        sweep_pci(PCI_DEVICE(pci), s);
    }
    if (kind->sweep) {
        kind->sweep(dev, s);
    }
}
