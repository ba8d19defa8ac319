/*
 * Save the state of all devices of this machine to memory
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef MIGRATION_RAM_RESET_VERIFY_SAVE_DEVICES_H
#define MIGRATION_RAM_RESET_VERIFY_SAVE_DEVICES_H

#include "io/channel-buffer.h"
#include "qobject/json-writer.h"
#include "migration/ram-reset/vmstate/device-sections.h"

/**
 * ram_reset_save_devices: save all devices and vCPUs, with their state in KVM
 *
 * @s: zeroed memory; the caller calls device_sections_clear() in any case
 *
 * Changes the devices that ram_reset_undo_save_changes() loads.  With the BQL
 * held.
 *
 * Returns: false with @errp set if a device cannot be saved
 */
bool ram_reset_save_devices(DeviceSections *s, Error **errp);

/**
 * ram_reset_parse_saved: find the sections that have been saved to @buffer
 *
 * @s: zeroed memory; gets a copy of the bytes, and the caller calls
 *     device_sections_clear() in any case
 * @desc: the description of the sections, complete
 * @footers: each section ends with a footer
 *
 * Returns: false with @errp set if the sections are not those of @desc
 */
bool ram_reset_parse_saved(DeviceSections *s, const QIOChannelBuffer *buffer,
                           JSONWriter *desc, bool footers, Error **errp);

#endif
