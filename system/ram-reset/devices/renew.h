/*
 * RAM reset: effects of a reset and a load outside of unchanged devices
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef RAM_RESET_DEVICES_RENEW_H
#define RAM_RESET_DEVICES_RENEW_H

#include "system/ram-reset-compat.h"

/*
 * A reset or a load of a device also changes state outside of the device.
 * These functions do the same for an unchanged device.  They are called when
 * all devices have been reset, and before any is loaded.  BQL held.
 */

/**
 * device_renew_vga: redraw all of the screen from the present memory, and let
 * the text cursor blink by the present clock
 */
void device_renew_vga(DeviceState *dev);

/**
 * device_renew_power: let neither the RTC's alarm nor the power management
 * timer wake a guest that sleeps, until the guest says so
 */
void device_renew_power(DeviceState *dev);

/**
 * device_renew_vmmouse: make it the user's mouse if the guest uses it
 */
void device_renew_vmmouse(DeviceState *dev);

#endif
