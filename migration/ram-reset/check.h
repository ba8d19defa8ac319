/*
 * Whether a snapshot load may begin
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef MIGRATION_RAM_RESET_CHECK_H
#define MIGRATION_RAM_RESET_CHECK_H

#include "migration/ram-reset/snapshot.h"

/**
 * ram_reset_check_load: whether @s may be loaded now
 *
 * @bs: where its VM state is
 *
 * See ram_reset_load_prepare() for what stands in the way.  Changes nothing.
 *
 * Returns: false with @errp set if it may not
 */
bool ram_reset_check_load(RamResetSnapshot *s, BlockDriverState *bs,
                          Error **errp);

/**
 * ram_reset_check_disks: whether each of @disks may be reverted now
 *
 * Returns: false with @errp set if one has a dirty bitmap or a block job
 */
bool ram_reset_check_disks(const GPtrArray *disks, Error **errp);

/**
 * ram_reset_clear_migration_error: QEMU would take that of an earlier migration
 * for one of the load
 */
void ram_reset_clear_migration_error(void);

#endif
