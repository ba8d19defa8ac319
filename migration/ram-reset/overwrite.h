/*
 * The snapshots that a save overwrites, or a deletion deletes
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef MIGRATION_RAM_RESET_OVERWRITE_H
#define MIGRATION_RAM_RESET_OVERWRITE_H

#include "qapi/qapi-builtin-types.h"

/*
 * @devices are the nodes that the user has named, if @has_devices.  All
 * functions need the BQL.  include/migration/ram-reset.h has the other ones.
 */

/**
 * ram_reset_overwrite_begin: a save begins, with vCPUs paused
 *
 * @disks: the disks that take part, of ram_reset_disks()
 * @name: the name of the snapshot; NULL if QEMU chooses one
 */
void ram_reset_overwrite_begin(const GPtrArray *disks, const char *name);

/**
 * ram_reset_overwrite_end: the save has ended
 */
void ram_reset_overwrite_end(void);

/**
 * ram_reset_delete_overwritten: delete the old snapshots with the name @name
 *
 * Returns: false with @errp set if a deletion fails; the new snapshot has been
 *     deleted then
 */
bool ram_reset_delete_overwritten(const char *name, bool has_devices,
                                  strList *devices, Error **errp);

#endif
