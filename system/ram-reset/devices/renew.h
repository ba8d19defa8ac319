/*
 * RAM reset: what devices that are kept have outside of them
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef RAM_RESET_DEVICES_RENEW_H
#define RAM_RESET_DEVICES_RENEW_H

#include "system/ram-reset-compat.h"

/*
 * A reset, or a load, of a device also changes what is not the device's own.
 * These functions do that for a device that is kept.  They are called when all
 * devices have been reset, and before any is loaded.
 */

/**
 * device_renew_vga: have all of the screen drawn, by what is in memory now, and
 * the text cursor blink by the clock as it is now
 */
void device_renew_vga(DeviceState *dev);

/**
 * device_renew_power: let neither the RTC's alarm nor the power management
 * timer wake a guest that sleeps, until the guest says so
 */
void device_renew_power(DeviceState *dev);

/**
 * device_renew_vmmouse: if the guest uses it, make it the user's mouse
 */
void device_renew_vmmouse(DeviceState *dev);

#endif
