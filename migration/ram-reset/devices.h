/*
 * Devices that a load leaves as they are
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef MIGRATION_RAM_RESET_DEVICES_H
#define MIGRATION_RAM_RESET_DEVICES_H

#include "migration/ram-reset/snapshot.h"

/**
 * ram_reset_leave_devices: the load is going to be a rewind to @s.  The reset
 * that comes next passes over devices that are as @s has them, and the cache of
 * @s skips their state.
 *
 * @map_frozen: see ram_reset_map_freeze()
 *
 * Returns: the number of devices that are left alone
 */
unsigned ram_reset_leave_devices(RamResetSnapshot *s, bool map_frozen);

/**
 * ram_reset_devices_were_reset: all devices have been reset, other than those
 * that are left alone
 *
 * Returns: false if the reset has unplugged some, which may have been left
 *     alone
 */
bool ram_reset_devices_were_reset(void);

/**
 * ram_reset_devices_loaded: the load of @s is over
 *
 * After a success, @s is the current snapshot if an object has rewind=on.
 */
void ram_reset_devices_loaded(RamResetSnapshot *s, bool success);

#endif
