/*
 * Loading snapshots that were saved with migration capability mapped-ram
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef MIGRATION_RAM_RESET_VMSTATE_MAPPED_RAM_H
#define MIGRATION_RAM_RESET_VMSTATE_MAPPED_RAM_H

#include "block/block.h"

/**
 * ram_reset_mapped_ram_blocker: why QEMU cannot save or load snapshots with the
 * capabilities that are set; NULL if it can
 */
const char *ram_reset_mapped_ram_blocker(void);

/**
 * ram_reset_clear_absent: make the pages zero that the snapshot does not store
 *
 * To be called when RAM has been loaded.
 *
 * @bs: where the VM state is
 * @ram: the position in it of the content of RAM's first section, or -1
 *
 * Returns: false with @errp set if these pages are not known
 */
bool ram_reset_clear_absent(BlockDriverState *bs, int64_t ram, Error **errp);

#endif
