/*
 * Which snapshots a save replaces, or a deletion deletes
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef MIGRATION_RAM_RESET_REPLACE_H
#define MIGRATION_RAM_RESET_REPLACE_H

#include "qapi/qapi-builtin-types.h"

/*
 * @devices are the nodes that the user has named, if @has_devices.  BQL held.
 * See include/migration/ram-reset.h for what else the file has.
 */

/**
 * ram_reset_replace_nothing: a save begins, which replaces nothing as yet
 */
void ram_reset_replace_nothing(void);

/**
 * ram_reset_delete_replaced: delete what ram_reset_save_replaces() has noted
 *
 * Returns: false with @errp set if that fails; the new snapshot @name has been
 *     deleted then
 */
bool ram_reset_delete_replaced(const char *name, bool has_devices,
                               strList *devices, Error **errp);

#endif
