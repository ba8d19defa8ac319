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
 * ram_reset_check_layout: compare machine type, CPUs and RAM blocks of @s with
 * this machine
 *
 * @bs: the image with the VM state; the snapshot need not be the current one
 *
 * Changes nothing.  With the BQL held.
 *
 * Returns: false with @errp set if @s does not fit, or has no VM state; true if
 *     the format of the image or of the VM state prevents a check, since the
 *     load makes its own
 */
bool ram_reset_check_layout(RamResetSnapshot *s, BlockDriverState *bs,
                            Error **errp);

#endif
