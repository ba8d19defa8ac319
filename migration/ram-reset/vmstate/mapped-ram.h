/*
 * Loading snapshots that were saved with migration capability mapped-ram
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef MIGRATION_RAM_RESET_VMSTATE_MAPPED_RAM_H
#define MIGRATION_RAM_RESET_VMSTATE_MAPPED_RAM_H

#include "block/block.h"

/**
 * ram_reset_mapped_ram_blocker: whether QEMU can save and load snapshots with
 * the current migration capabilities
 *
 * Returns: a static text with the reason why it cannot; NULL if it can
 */
const char *ram_reset_mapped_ram_blocker(void);

/**
 * ram_reset_clear_absent: clear all pages that the snapshot does not store
 *
 * Call this when RAM has been loaded, with the BQL held.
 *
 * @bs: the image with the VM state
 * @ram: the position in it of the content of the first RAM section, in bytes;
 *     -1 if that is unknown
 *
 * Returns: false with @errp set if the position is unknown, or the list of
 *     stored pages cannot be read
 */
bool ram_reset_clear_absent(BlockDriverState *bs, int64_t ram, Error **errp);

#endif
