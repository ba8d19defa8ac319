/*
 * RAM reset: devices with their parts
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef RAM_RESET_DEVICES_PARTS_H
#define RAM_RESET_DEVICES_PARTS_H

#include "system/ram-reset-compat.h"

/**
 * device_parts: @dev and all below it that a load resets and loads with it, but
 * not the devices on a PCI bus below
 *
 * Returns: an array of DeviceState, @dev first, with a reference to each
 */
GPtrArray *device_parts(DeviceState *dev);

/* The first of @parts whose class is not known; NULL if all are */
DeviceState *device_find_unknown(const GPtrArray *parts);

#endif
