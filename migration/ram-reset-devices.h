/*
 * Devices that a load leaves as they are
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef MIGRATION_RAM_RESET_DEVICES_H
#define MIGRATION_RAM_RESET_DEVICES_H

#include "block/snapshot.h"

/**
 * ram_reset_keep_devices: a load has begun; if it is going to be a rewind, the
 * reset that comes next will pass over devices that are as the snapshot has
 * them, and their state is left out of what is kept of the VM state
 *
 * @bs: where the VM state of @sn is
 * @map: the memory map is held
 */
void ram_reset_keep_devices(BlockDriverState *bs, const QEMUSnapshotInfo *sn,
                            bool map);

/**
 * ram_reset_devices_reset: they have been reset
 */
void ram_reset_devices_reset(void);

/**
 * ram_reset_devices_loaded: the load is over
 *
 * @bs: where the VM state of @sn is
 *
 * Returns: how many devices have not been loaded
 */
unsigned ram_reset_devices_loaded(BlockDriverState *bs,
                                  const QEMUSnapshotInfo *sn, bool success);

#endif
