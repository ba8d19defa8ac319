/*
 * Taking in runs of zero records
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef MIGRATION_RAM_RESET_ZEROS_H
#define MIGRATION_RAM_RESET_ZEROS_H

#include "block/block.h"
#include "exec/cpu-common.h"
#include "migration/qemu-file-types.h"

/**
 * ram_reset_take_zeros: take in the zero records that follow, if they run on
 *
 * @f: the VM state that is being loaded, just behind a zero record
 * @bs: where it is
 * @addr: the address in that record
 *
 * Takes as many records as are for one page after the other, each known to be
 * zero, and leaves @f behind the last of them.  An error of reading is left
 * for whoever reads @f next.
 */
void ram_reset_take_zeros(QEMUFile *f, BlockDriverState *bs, ram_addr_t addr);

#endif
