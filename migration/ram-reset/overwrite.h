/*
 * The snapshots that a save overwrites, or a deletion deletes
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef MIGRATION_RAM_RESET_OVERWRITE_H
#define MIGRATION_RAM_RESET_OVERWRITE_H

#include "qapi/qapi-builtin-types.h"

/*
 * @devices are the nodes that the user has named, if @has_devices.  BQL held.
 * See include/migration/ram-reset.h for the other functions.
 */

/**
 * ram_reset_replace_begin: a save begins; vCPUs do not run
 *
 * @disks: the disks that take part, of ram_reset_disks()
 * @name: of the snapshot, or NULL if QEMU chooses one
 */
void ram_reset_replace_begin(const GPtrArray *disks, const char *name);

/**
 * ram_reset_replace_end: the save is over
 */
void ram_reset_replace_end(void);

/**
 * ram_reset_delete_replaced: delete the snapshots that the save replaces
 *
 * Returns: false with @errp set if that fails; the new snapshot @name has been
 *     deleted then
 */
bool ram_reset_delete_replaced(const char *name, bool has_devices,
                               strList *devices, Error **errp);

#endif
