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

/* The first of @parts with an unknown class; NULL if there is none */
DeviceState *device_find_unknown(const GPtrArray *parts);

#endif
