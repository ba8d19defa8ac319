/*
 * Whether devices hold what a snapshot has
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef MIGRATION_RAM_RESET_VERIFY_DEVICES_H
#define MIGRATION_RAM_RESET_VERIFY_DEVICES_H

#include "block/block.h"
#include "block/snapshot.h"
#include "migration/ram-reset/vmstate/device-sections.h"

/**
 * ram_reset_compare_section: whether two sections of a device have the same,
 * but for what verify/exceptions.c lists
 *
 * @a: of a snapshot
 * @b: of the machine
 *
 * Returns: false with @errp set to the first difference
 */
bool ram_reset_compare_section(const DeviceSection *a, const DeviceSection *b,
                               Error **errp);

/**
 * ram_reset_check_devices: whether devices and vCPUs hold what the VM state
 * has, which has just been loaded
 *
 * @bs: where the VM state of @sn is; it has been made the current one
 * @from: where in it the footer of RAM's last section is; not positive if
 *     that is not known
 *
 * All of them are saved to memory, and compared byte by byte but for what
 * verify/exceptions.c lists.
 *
 * Returns: false with @errp set to the first difference, or to the reason
 * why the VM state cannot be compared.
 */
bool ram_reset_check_devices(BlockDriverState *bs, const QEMUSnapshotInfo *sn,
                             int64_t from, Error **errp);

#endif
