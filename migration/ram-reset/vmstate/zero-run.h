/*
 * Loading runs of zero records at once
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef MIGRATION_RAM_RESET_VMSTATE_ZERO_RUN_H
#define MIGRATION_RAM_RESET_VMSTATE_ZERO_RUN_H

#include "block/block.h"
#include "exec/cpu-common.h"
#include "migration/qemu-file-types.h"

/**
 * ram_reset_take_zeros: consume the zero records that follow
 *
 * @f: the VM state that is being loaded, just behind a zero record
 * @bs: where it is
 * @addr: the address in that record
 *
 * Consumes as many records as are for one page after the other, each known to
 * be zero, and leaves @f behind the last of them.  On a read error, @f stays
 * where whoever reads it next gets the same error.
 */
void ram_reset_take_zeros(QEMUFile *f, BlockDriverState *bs, ram_addr_t addr);

#endif
