/*
 * What of devices differs from the snapshot that has just been loaded
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
 * @field: of that, the name; NULL for whether there is the subsection @vmsd
 * @byte: of the field, counted from 0; of an array, of its element
 * @bits: of the byte
 */
bool ram_reset_may_differ(const char *vmsd, const char *field, uint64_t byte,
                          uint8_t bits);

/**
 * ram_reset_load_what_saves_change: undo what it has changed that devices have
 * been saved
 *
 * @snapshot: that the machine is to hold
 *
 * Returns: false with @errp set if it cannot be undone
 */
bool ram_reset_load_what_saves_change(const DeviceSections *snapshot,
                                      Error **errp);

#endif
