/*
 * RAM reset in the course of saving a snapshot
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef MIGRATION_RAM_RESET_SAVE_H
#define MIGRATION_RAM_RESET_SAVE_H

#include "block/block.h"
#include "migration/qemu-file-types.h"

/**
 * ram_reset_save_open: open the file for the VM state that is to be saved
 *
 * @bs: where the VM state goes; drained.  With the BQL held.
 *
 * Returns: a file, to be closed by the caller
 */
QEMUFile *ram_reset_save_open(BlockDriverState *bs);

#endif
