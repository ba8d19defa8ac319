/*
 * Comparing a snapshot with the running machine: before a load, and after
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef MIGRATION_RAM_RESET_CHECK_H
#define MIGRATION_RAM_RESET_CHECK_H

#include "block/snapshot.h"

/**
 * ram_reset_check_layout: whether @sn is of this machine and RAM layout
 *
 * @bs: where the VM state is; the snapshot need not be the current one
 *
 * Reads the beginning of the VM state by an image of its own, so nothing
 * changes.  What it says is remembered and not read again.
 * Where the format of the image, or of the VM state, does not allow to look,
 * the answer is true and the load itself will find out.
 *
 * Returns: false with @errp set if it is not, or is no VM state at all.
 */
bool ram_reset_check_layout(BlockDriverState *bs, const QEMUSnapshotInfo *sn,
                            Error **errp);

/**
 * ram_reset_snapshot_identity: a text that another snapshot has only if its RAM
 * is the same
 *
 * A copy of the image has snapshots with the same one.  Besides what the image
 * says of @sn it has a checksum of the VM state's beginning and end, and of
 * samples in between; so takes some reads the first time.
 *
 * Returns: NULL if the format of the image does not allow to look, or it
 *     cannot be read.  To be freed.
 */
char *ram_reset_snapshot_identity(BlockDriverState *bs,
                                  const QEMUSnapshotInfo *sn);

/**
 * ram_reset_template_identity: that of the template that @sn has, or would have
 *
 * Returns: NULL if it may have none.  To be freed.
 */
char *ram_reset_template_identity(BlockDriverState *bs,
                                  const QEMUSnapshotInfo *sn);

/**
 * ram_reset_retire_templates: @sn is going to be deleted
 *
 * Its templates go with it; if it is not deleted after all, the next load makes
 * new ones.
 */
void ram_reset_retire_templates(BlockDriverState *bs,
                                const QEMUSnapshotInfo *sn);

/**
 * ram_reset_check_content: whether RAM holds what the VM state has
 *
 * @bs: where the VM state is; it has been made the current one
 *
 * Every byte of migratable RAM is compared, but for blocks that migration
 * ignores.  Pages that the VM state does not name must be zero if their
 * block is one that RAM reset claims.  Allocates a byte per target page.
 *
 * Returns: false with @errp set to the first difference, or to the reason
 * why the VM state cannot be compared.
 */
bool ram_reset_check_content(BlockDriverState *bs, Error **errp);

#endif
