/*
 * RAM reset: effects of a reset and a load outside of unchanged devices
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "hw/display/vga_int.h"
#include "hw/ide/ide-bus.h"
#include "qapi/error.h"
#include "qapi/qapi-commands-ui.h"
#include "system/ram-reset-devices.h"
#include "system/runstate.h"
#include "ui/input.h"
#include "system/ram-reset/devices/renew.h"
#include "system/ram-reset/devices/sweep.h"

void device_renew_vga(DeviceState *dev)
{
    VGACommonState *vga = device_field(dev, "vga");

    vga->graphic_mode = -1;
}

void device_renew_power(DeviceState *dev)
{
    qemu_system_wakeup_enable(QEMU_WAKEUP_REASON_RTC, false);
    qemu_system_wakeup_enable(QEMU_WAKEUP_REASON_PMTIMER, false);
}

/* The input handler exists while the guest uses the device */
void device_renew_vmmouse(DeviceState *dev)
{
    g_autoptr(MouseInfoList) mice = qmp_query_mice(&error_abort);

    for (MouseInfoList *m = mice; m; m = m->next) {
        if (!strcmp(m->value->name, "vmmouse") && !m->value->current) {
            qemu_mouse_set(m->value->index, &error_abort);
        }
    }
}

/* Parent class of VGA and secondary-vga; no header of QEMU has its name */
#define TYPE_PCI_VGA "pci-vga"

/* An unchanged device counts as in reset */
static int set_default_order(DeviceState *dev, void *opaque)
{
    if (object_dynamic_cast(OBJECT(dev), TYPE_PCI_VGA) &&
        !resettable_is_in_reset(OBJECT(dev))) {
        VGACommonState *vga = device_field(dev, "vga");

        vga->big_endian_fb = vga->default_endian_fb;
    }
    return 0;
}

/* Otherwise cont would retry a request that the snapshot does not have */
static int clear_error(BusState *bus, void *opaque)
{
    if (object_dynamic_cast(OBJECT(bus), TYPE_IDE_BUS) &&
        !resettable_is_in_reset(OBJECT(bus->parent))) {
        IDE_BUS(bus)->error_status = 0;
    }
    return 0;
}

void ram_reset_devices_complete_reset(void)
{
    qbus_walk_children(sysbus_get_default(), set_default_order, clear_error,
                       NULL, NULL, NULL);
}
