/*
 * Unchanged devices, which a load does not load
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef MIGRATION_RAM_RESET_DEVICES_H
#define MIGRATION_RAM_RESET_DEVICES_H

#include "migration/ram-reset/snapshot.h"

/**
 * ram_reset_leave_devices: find unchanged devices, before a rewind to @s
 *
 * @map_frozen: the result of ram_reset_map_freeze()
 *
 * The next system reset skips devices that have the state of @s, and the cache
 * of @s skips their sections.  With the BQL held.
 *
 * Returns: the number of unchanged devices
 */
unsigned ram_reset_leave_devices(RamResetSnapshot *s, bool map_frozen);

/**
 * ram_reset_devices_were_reset: the system reset has reset all devices that
 * have changed
 *
 * With the BQL held.
 *
 * Returns: false if the reset has unplugged a device, which may have been
 *     unchanged
 */
bool ram_reset_devices_were_reset(void);

/**
 * ram_reset_devices_loaded: the load of @s has ended
 *
 * After a success, and with rewind=on, makes @s the current snapshot and copies
 * devices; else drops the copies and the cache of @s.  With the BQL held.
 */
void ram_reset_devices_loaded(RamResetSnapshot *s, bool success);

#endif
