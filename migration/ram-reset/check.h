/*
 * Whether a snapshot load may begin
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef MIGRATION_RAM_RESET_CHECK_H
#define MIGRATION_RAM_RESET_CHECK_H

#include "migration/ram-reset/snapshot.h"

/**
 * ram_reset_check_load: check that @s can be loaded now
 *
 * @bs: the image with the VM state
 *
 * ram_reset_load_prepare() lists the reasons for a refusal.  Changes nothing.
 * With the BQL held.
 *
 * Returns: false with @errp set if the load must be refused
 */
bool ram_reset_check_load(RamResetSnapshot *s, BlockDriverState *bs,
                          Error **errp);

/**
 * ram_reset_check_disks: check that each of @disks can be reverted now
 *
 * With the BQL held.
 *
 * Returns: false with @errp set if a disk has a dirty bitmap or a block job
 */
bool ram_reset_check_disks(const GPtrArray *disks, Error **errp);

/**
 * ram_reset_clear_migration_error: clear the error of an earlier migration
 *
 * QEMU would report it as an error of the load.  With the BQL held.
 */
void ram_reset_clear_migration_error(void);

#endif
