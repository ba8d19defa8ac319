/*
 * The state of all devices, as a VM state has it
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef MIGRATION_RAM_RESET_DEVICE_STATE_H
#define MIGRATION_RAM_RESET_DEVICE_STATE_H

#include "block/block.h"
#include "migration/ram-reset-vmdesc.h"

/**
 * DeviceSection: of one device, or of one vCPU
 *
 * @data: what it has between header and footer, @len bytes as @desc says
 */
typedef struct DeviceSection {
    char *name;
    uint32_t instance, version;
    const VMDesc *desc;
    const uint8_t *data;
    size_t len;
} DeviceSection;

/**
 * SavedDevices: the sections of all; starts as zeroed memory
 */
typedef struct SavedDevices {
    const char *what;           /* for error messages */
    uint8_t *data;
    size_t len;
    GPtrArray *descs;           /* VMDesc */
    GArray *sections;           /* DeviceSection */
} SavedDevices;

/**
 * saved_devices_read: what the VM state has
 *
 * @bs: where the VM state is; it has been made the current one
 * @from: where in it the footer of RAM's last section is; not positive if
 *     that is not known
 *
 * Returns: false with @errp set if it cannot be read
 */
bool saved_devices_read(SavedDevices *d, BlockDriverState *bs, int64_t from,
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
 * saved_devices_find: the section with the name and the instance of @like
 *
 * @first: where to begin to look
 *
 * Returns: NULL if there is none
 */
const DeviceSection *saved_devices_find(const SavedDevices *d,
                                        const DeviceSection *like,
                                        unsigned first);

void saved_devices_clear(SavedDevices *d);

#endif
