/*
 * Snapshots that a disk has from its backing file
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef MIGRATION_RAM_RESET_INHERITED_H
#define MIGRATION_RAM_RESET_INHERITED_H

#include "block/snapshot.h"

/*
 * If the backing file of an overlay is open at an internal snapshot, the
 * overlay inherits this one: its disk when nothing is in the overlay, and its
 * VM state in the backing file.  Such a snapshot can be loaded, and not
 * deleted.  All functions need the BQL.
 */

/**
 * ram_reset_inherited: the snapshot that @bs inherits
 *
 * @bs: a disk
 * @name: the name that it must have
 * @sn: set to it
 *
 * Returns: the node with the snapshot, borrowed; NULL if @bs inherits none of
 *     the name
 */
BlockDriverState *ram_reset_inherited(BlockDriverState *bs, const char *name,
                                      QEMUSnapshotInfo *sn);

/**
 * ram_reset_check_inherited: whether @bs can be reverted to what @node shows
 */
bool ram_reset_check_inherited(BlockDriverState *bs, BlockDriverState *node,
                               Error **errp);

/**
 * ram_reset_backing_has: whether the backing file of @bs has a snapshot of this
 * name, whatever it shows
 */
bool ram_reset_backing_has(BlockDriverState *bs, const char *name);

#endif
