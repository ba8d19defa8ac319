/*
 * Whether RAM holds what a snapshot has
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef MIGRATION_RAM_RESET_VERIFY_RAM_H
#define MIGRATION_RAM_RESET_VERIFY_RAM_H

#include "block/block.h"

/**
 * ram_reset_check_content: whether RAM holds what the VM state has
 *
 * @bs: where the VM state is; it has been made the current one
 *
 * Every byte of migratable RAM is compared, but for blocks that migration
 * ignores.  Pages that the VM state does not name must be zero if their
 * block is one that RAM reset covers.  Allocates a byte per target page.
 *
 * Returns: false with @errp set to the first difference, or to the reason
 * why the VM state cannot be compared.
 */
bool ram_reset_check_content(BlockDriverState *bs, Error **errp);

#endif
