/*
 * Fields of devices that may differ from the snapshot that has just been loaded
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef MIGRATION_RAM_RESET_VERIFY_EXCEPTIONS_H
#define MIGRATION_RAM_RESET_VERIFY_EXCEPTIONS_H

#include "migration/ram-reset/vmstate/device-sections.h"

/**
 * ram_reset_may_differ: whether bits of a field may differ
 *
 * @vmsd: the name of the VMStateDescription
 * @field: the name of its field; NULL to ask whether the subsection @vmsd may
 *     be missing
 * @byte: the index of the byte in the field, or in an element of an array
 * @bits: the bits that differ in the byte
 */
bool ram_reset_may_differ(const char *vmsd, const char *field, uint64_t byte,
                          uint8_t bits);

/**
 * ram_reset_undo_save_changes: load each device whose state a save has changed
 *
 * @snapshot: the sections to load from
 *
 * With the BQL held.
 *
 * Returns: false with @errp set if a device cannot be loaded
 */
bool ram_reset_undo_save_changes(const DeviceSections *snapshot,
                                 Error **errp);

#endif
