/*
 * The state of all devices, as a VM state has it
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef MIGRATION_RAM_RESET_DEVICE_STATE_H
#define MIGRATION_RAM_RESET_DEVICE_STATE_H

#include "block/block.h"
#include "block/snapshot.h"
#include "migration/ram-reset-description.h"

/**
 * SavedDevices: the sections of all; starts as zeroed memory
 */
typedef struct SavedDevices {
    uint8_t *data;
    DeviceSections sections;
} SavedDevices;

/**
 * saved_devices_read: what the VM state has
 *
 * @bs: where the VM state of @sn is; it has been made the current one
 * @from: where in it the footer of RAM's last section is; not positive if
 *     that is not known
 *
 * Returns: false with @errp set if it cannot be read
 */
bool saved_devices_read(SavedDevices *d, BlockDriverState *bs,
                        const QEMUSnapshotInfo *sn, int64_t from,
                        Error **errp);

/**
 * saved_devices_save: what the machine has, with what vCPUs have in KVM
 *
 * See ram-reset-verify-except.c for what that changes.
 *
 * Returns: false with @errp set if it cannot be saved
 */
bool saved_devices_save(SavedDevices *d, Error **errp);

/**
 * saved_devices_find: the section @name, with the instance @instance
 *
 * @first: where to begin to look
 *
 * Returns: NULL if there is none
 */
const DeviceSection *saved_devices_find(const SavedDevices *d,
                                        const char *name, uint32_t instance,
                                        unsigned first);

void saved_devices_clear(SavedDevices *d);

#endif
