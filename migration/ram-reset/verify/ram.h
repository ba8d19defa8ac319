/*
 * Verify that RAM has the content of a snapshot
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef MIGRATION_RAM_RESET_VERIFY_RAM_H
#define MIGRATION_RAM_RESET_VERIFY_RAM_H

#include "block/block.h"

/**
 * ram_reset_check_content: compare RAM with the VM state
 *
 * @bs: the image with the VM state, which is the current one
 *
 * Compares each byte of migratable RAM, except blocks that migration ignores.
 * A page that the VM state does not name must be zero if RAM reset covers its
 * block.  Allocates a byte per target page.  With the BQL held.
 *
 * Returns: false with @errp set to the first difference, or to the reason why
 *     the VM state cannot be compared
 */
bool ram_reset_check_content(BlockDriverState *bs, Error **errp);

#endif
