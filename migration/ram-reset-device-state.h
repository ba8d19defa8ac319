/*
 * The state of all devices of this machine
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef MIGRATION_RAM_RESET_DEVICE_STATE_H
#define MIGRATION_RAM_RESET_DEVICE_STATE_H

#include "migration/ram-reset-description.h"

/**
 * ram_reset_save_devices: with what vCPUs have in KVM
 *
 * See ram-reset-verify-except.c for what that changes.
 *
 * Returns: false with @errp set if it cannot be saved
 */
bool ram_reset_save_devices(DeviceSections *s, Error **errp);

#endif
