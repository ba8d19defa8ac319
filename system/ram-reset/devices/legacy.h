/*
 * RAM reset: devices that register a function to be reset by
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef RAM_RESET_DEVICES_LEGACY_H
#define RAM_RESET_DEVICES_LEGACY_H

#include "system/ram-reset-compat.h"

/**
 * legacy_reset_hold: until legacy_reset_release(), functions that have been
 * given to qemu_register_reset() are not called if their argument is a part of
 * @dev's instance
 */
void legacy_reset_hold(DeviceState *dev);

void legacy_reset_release(void);

#endif
