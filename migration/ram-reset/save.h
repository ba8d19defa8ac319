/*
 * The course of a save
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef MIGRATION_RAM_RESET_SAVE_H
#define MIGRATION_RAM_RESET_SAVE_H

#include "block/block.h"
#include "migration/qemu-file-types.h"

/**
 * ram_reset_save_open: open a VM state for writing
 *
 * @bs: the image for the VM state, drained
 *
 * With the BQL held.
 *
 * Returns: a file; the caller closes it with qemu_fclose()
 */
QEMUFile *ram_reset_save_open(BlockDriverState *bs);

#endif
