/*
 * The state of all devices of this machine
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef MIGRATION_RAM_RESET_VERIFY_SAVE_DEVICES_H
#define MIGRATION_RAM_RESET_VERIFY_SAVE_DEVICES_H

#include "migration/ram-reset/vmstate/device-sections.h"

/**
 * ram_reset_save_devices: with what vCPUs have in KVM
 *
 * See verify/exceptions.c for what that changes.
 *
 * Returns: false with @errp set if it cannot be saved
 */
bool ram_reset_save_devices(DeviceSections *s, Error **errp);

#endif
