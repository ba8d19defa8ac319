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
 * ram_reset_consume_zeros: consume a run of zero records
 *
 * @f: the VM state that is being loaded, just behind a zero record
 * @bs: the image with the VM state
 * @addr: the address in that record
 *
 * A run has one record per page, in order, and each page is known to be zero.
 * Leaves @f behind the last record of the run.  After a read error, the next
 * reader of @f gets the same error.  With the BQL held.
 *
 * Returns: the number of records
 */
uint64_t ram_reset_consume_zeros(QEMUFile *f, BlockDriverState *bs,
                                 ram_addr_t addr);

#endif
