/*
 * Verify that devices have the state of a snapshot
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef MIGRATION_RAM_RESET_VERIFY_DEVICES_H
#define MIGRATION_RAM_RESET_VERIFY_DEVICES_H

#include "block/block.h"
#include "block/snapshot.h"
#include "migration/ram-reset/vmstate/device-sections.h"

/**
 * ram_reset_compare_section: compare two sections of a device, except the
 * fields that verify/exceptions.c lists
 *
 * @a: the section of a snapshot
 * @b: the section of the machine
 *
 * Returns: false with @errp set to the first difference
 */
bool ram_reset_compare_section(const DeviceSection *a, const DeviceSection *b,
                               Error **errp);

/**
 * ram_reset_check_devices: compare all devices and vCPUs with the VM state that
 * has just been loaded
 *
 * @bs: the image with the VM state of @sn, which is the current one
 * @memory: the VM state, if no image has it; else NULL
 * @from: the position in it of the footer of the last RAM section, in bytes; 0
 *     or negative if it is unknown
 *
 * Saves all devices to memory, and compares each byte, except the fields that
 * verify/exceptions.c lists.  With the BQL held.
 *
 * Returns: false with @errp set to the first difference, or to the reason why
 *     the VM state cannot be compared
 */
bool ram_reset_check_devices(BlockDriverState *bs, const QEMUSnapshotInfo *sn,
                             GBytes *memory, int64_t from, Error **errp);

#endif
