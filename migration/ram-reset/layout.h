/*
 * Whether a snapshot fits the running machine
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef MIGRATION_RAM_RESET_LAYOUT_H
#define MIGRATION_RAM_RESET_LAYOUT_H

#include "system/ram-reset-load.h"
#include "migration/ram-reset/snapshot.h"

/**
 * ram_reset_check_layout: whether @s is of this machine and RAM layout
 *
 * @bs: where the VM state is; the snapshot need not be the current one
 *
 * Changes nothing.  Where the format of the image, or of the VM state, does
 * not allow to look, the answer is true and the load itself will find out.
 *
 * Returns: false with @errp set if it is not, or is no VM state at all.
 */
bool ram_reset_check_layout(RamResetSnapshot *s, BlockDriverState *bs,
                            Error **errp);

#endif
