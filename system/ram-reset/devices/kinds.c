/*
 * RAM reset: the known classes of devices, and the places of their state
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/cutils.h"
#include "qapi/util.h"
#include "qemu/timer.h"
#include "hw/acpi/ich9.h"
#include "hw/acpi/piix4.h"
#include "hw/ide/ahci-pci.h"
#include "hw/ide/ahci.h"
#include "hw/ide/ahci-internal.h"
#include "hw/pci-host/i440fx.h"
#include "hw/pci-host/q35.h"
#include "hw/southbridge/ich9.h"
#include "hw/display/vga_int.h"
#include "hw/input/hid.h"
#include "hw/usb/hcd-xhci-pci.h"
#include "migration/vmstate.h"
#include "system/block-backend.h"
#include "hw/virtio/virtio-pci.h"
#include "hw/virtio/virtio-serial.h"
#include "system/ram-reset-devices.h"
#include "system/ram-reset/devices/kinds.h"
#include "system/ram-reset/devices/layouts.h"
#include "system/ram-reset/devices/renew.h"
#include "system/ram-reset/devices/virtio.h"

static void sweep_acpi(ACPIREGS *regs, CPUHotplugState *cpus,
                       MemHotplugState *memory, AcpiPciHpState *pci,
                       DeviceSweep *s)
{
    device_sweep_timer(s, regs->tmr.timer);
    device_sweep(s, regs->gpe.sts, regs->gpe.len);
    device_sweep(s, regs->gpe.en, regs->gpe.len);
    device_sweep(s, cpus->devs, cpus->dev_count * sizeof(*cpus->devs));
    device_sweep(s, memory->devs, memory->dev_count * sizeof(*memory->devs));
    for (int i = 0; i < ARRAY_SIZE(pci->acpi_pcihp_pci_status); i++) {
        /* A reset completes an unplug that the guest has not done */
        device_sweep_require(s, !pci->acpi_pcihp_pci_status[i].down);
    }
}

static void sweep_piix4_pm(DeviceState *dev, DeviceSweep *s)
{
    PIIX4PMState *pm = PIIX4_PM(dev);

    sweep_acpi(&pm->ar, &pm->cpuhp_state, &pm->acpi_memory_hotplug,
               &pm->acpi_pci_hotplug, s);
}

static void sweep_ich9(DeviceState *dev, DeviceSweep *s)
{
    ICH9LPCPMRegs *pm = &ICH9_LPC_DEVICE(dev)->pm;

    sweep_acpi(&pm->acpi_regs, &pm->cpuhp_state, &pm->acpi_memory_hotplug,
               &pm->acpi_pci_hotplug, s);
    device_sweep_timer(s, pm->swsmi_timer);
    device_sweep_timer(s, pm->periodic_timer);
    device_sweep_timer(s, pm->tco_regs.tco_timer);
}

static void sweep_drive(IDEState *ide, DeviceSweep *s)
{
    bool cache = ide->blk && blk_enable_write_cache(ide->blk);

    device_sweep_timer(s, ide->sector_write_timer);
    /* No request is pending, and no buffer has data of one */
    device_sweep_require(s, !(ide->status & (BUSY_STAT | DRQ_STAT)) &&
                            !ide->pio_aiocb &&
                            QLIST_EMPTY(&ide->buffered_requests));
    device_sweep(s, ide->smart_selftest_data, 512);
    device_sweep(s, &cache, sizeof(cache));
}

static void sweep_ahci(DeviceState *dev, DeviceSweep *s)
{
    AHCIState *ahci = &ICH9_AHCI(dev)->ahci;

    device_sweep(s, ahci->dev, ahci->ports * sizeof(*ahci->dev));
    for (int i = 0; i < ahci->ports; i++) {
        for (int unit = 0; unit < 2; unit++) {
            sweep_drive(&ahci->dev[i].port.ifs[unit], s);
        }
    }
}

static void sweep_xhci(DeviceState *dev, DeviceSweep *s)
{
    XHCIState *xhci = XHCI(dev);

    device_sweep_timer(s, xhci->mfwrap_timer);
    for (int i = 0; i < xhci->numintrs; i++) {
        device_sweep(s, &xhci->intr[i], offsetof(XHCIInterrupter, ev_buffer));
    }
    for (int i = 0; i < ARRAY_SIZE(xhci->slots); i++) {
        for (int ep = 0; ep < ARRAY_SIZE(xhci->slots[i].eps); ep++) {
            device_sweep_require(s, !xhci->slots[i].eps[ep]);
        }
    }
}

static void sweep_tablet(DeviceState *dev, DeviceSweep *s)
{
    HIDState *hid = device_field(dev, "hid");

    device_sweep_timer(s, hid->idle_timer);
}

/* The log is not in the instance */
static void sweep_root_port(DeviceState *dev, DeviceSweep *s)
{
    device_sweep_require(s, !PCI_DEVICE(dev)->exp.aer_log.log_num);
}

/* From a member of a struct up to another one */
#define HOLE(type, member, end) { offsetof(type, member), offsetof(type, end) }
/* The member only */
#define HOLE_OF(type, member) \
    { offsetof(type, member), \
      offsetof(type, member) + sizeof(((type *)NULL)->member) }

/* QEMU makes these when the VM resumes; they are empty while it is stopped */
#define VIRTIO_PCI_HOLES {                                          \
        HOLE_OF(VirtIOPCIProxy, bar.ioeventfds),                    \
        HOLE_OF(VirtIOPCIProxy, notify.mr.ioeventfds),              \
        HOLE_OF(VirtIOPCIProxy, notify_pio.mr.ioeventfds),          \
    }

static const DeviceKind kinds[] = {
    { "ICH9-LPC", .sweep = sweep_ich9,
      .renew = device_renew_power,
      .holes = { HOLE_OF(ICH9LPCState, rtc) } },
    { "PIIX4_PM", .size = sizeof(PIIX4PMState), .sweep = sweep_piix4_pm,
      .renew = device_renew_power },
    { "VGA", .renew = device_renew_vga, .holes_in = "vga",
      .holes = { HOLE(VGACommonState, con, big_endian_fb),
                 HOLE(VGACommonState, invalidated_y_table, retrace) } },
    { "base-xhci", .inner = true, .sweep = sweep_xhci,
      .holes = { HOLE(XHCIState, intr, cmd_ring) } },
    { "i440FX", .size = sizeof(PCII440FXState) },
    { "ich9-ahci", .sweep = sweep_ahci },
    { "mch", .size = sizeof(MCHPCIState) },
    { "pcie-root-port", .sweep = sweep_root_port },
    { "qemu-xhci" },
    { "usb-tablet", .inner = true, .sweep = sweep_tablet },
    { "virtconsole", .inner = true, .sweep = device_sweep_virtio_port },
    { "virtio-blk-device", .inner = true, .sweep = device_sweep_virtio_blk },
    { "virtio-blk-pci", .holes = VIRTIO_PCI_HOLES },
    { "virtio-net-device", .inner = true, .sweep = device_sweep_virtio_net },
    { "virtio-net-pci", .holes = VIRTIO_PCI_HOLES },
    { "virtio-serial-device", .inner = true,
      .sweep = device_sweep_virtio_serial,
      .holes = { HOLE_OF(VirtIOSerial, post_load) } },
    { "virtio-serial-pci", .holes = VIRTIO_PCI_HOLES },
    { "virtserialport", .inner = true, .sweep = device_sweep_virtio_port },
    { "vmmouse", .renew = device_renew_vmmouse },
};

const DeviceKind *device_kind(DeviceState *dev)
{
    const char *type = object_get_typename(OBJECT(dev));

    for (int i = 0; i < ARRAY_SIZE(kinds); i++) {
        if (!strcmp(type, kinds[i].type)) {
            return &kinds[i];
        }
    }
    return NULL;
}

/* BQL.  The reason to load each kind; NULL if it need not be loaded */
static const char *problems[ARRAY_SIZE(kinds)];

static const char *find_problem(const DeviceKind *kind)
{
    /* See virtio.h */
    if (kind->inner && strstart(kind->type, "virt", NULL) && !kind->sweep) {
        return "its queues cannot be compared in this build";
    }
    for (const DeviceLayout *l = device_layouts; l->type; l++) {
        if (!strcmp(l->type, kind->type)) {
            return l->problem;
        }
    }
    return "its memory was never read";
}

static void find_problems(void)
{
    static bool found;

    for (int i = 0; !found && i < ARRAY_SIZE(kinds); i++) {
        problems[i] = find_problem(&kinds[i]);
    }
    found = true;
}

const char *device_problem(DeviceState *dev)
{
    const DeviceKind *kind = device_kind(dev);

    find_problems();
    return kind ? problems[kind - kinds] : "RAM reset does not know the class";
}

bool device_is_known(DeviceState *dev)
{
    return !device_problem(dev);
}

void ram_reset_devices_distrust(DeviceState *dev, const char *problem)
{
    const DeviceKind *kind = device_kind(dev);

    find_problems();
    problems[kind - kinds] = problems[kind - kinds] ?: g_strdup(problem);
}
