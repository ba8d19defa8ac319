/*
 * RAM reset: what devices that are kept have outside of them
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

/* Its handler of input is there while the guest uses it */
void device_renew_vmmouse(DeviceState *dev)
{
    g_autoptr(MouseInfoList) mice = qmp_query_mice(&error_abort);

    for (MouseInfoList *m = mice; m; m = m->next) {
        if (!strcmp(m->value->name, "vmmouse") && !m->value->current) {
            qemu_mouse_set(m->value->index, &error_abort);
        }
    }
}

/* Of VGA and secondary-vga; QEMU has no name for it that others may use */
#define TYPE_PCI_VGA "pci-vga"

/* One that is kept is as if in a reset */
static int set_default_order(DeviceState *dev, void *opaque)
{
    if (object_dynamic_cast(OBJECT(dev), TYPE_PCI_VGA) &&
        !resettable_is_in_reset(OBJECT(dev))) {
        VGACommonState *vga = device_field(dev, "vga");

        vga->big_endian_fb = vga->default_endian_fb;
    }
    return 0;
}

/* By it, cont would try a request again that is not the snapshot's */
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
