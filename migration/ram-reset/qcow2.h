/*
 * The VM state in the active layer of a qcow2 image
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef MIGRATION_RAM_RESET_QCOW2_H
#define MIGRATION_RAM_RESET_QCOW2_H

#include "block/block.h"

/* The BQL must be held, and @bs drained.  @bs may be a filter, or raw */

/**
 * ram_reset_qcow2_file_length: the length of the file of @bs
 *
 * Returns: bytes; -1 if @bs is no qcow2 image
 */
int64_t ram_reset_qcow2_file_length(BlockDriverState *bs);

/**
 * ram_reset_qcow2_drop_vmstate: free the clusters that a failed save has used
 *
 * @file_length: of ram_reset_qcow2_file_length(), before the save
 *
 * Frees the clusters of the VM state in the active layer, and cuts off the
 * unused end of the file, down to @file_length at most.  A full or damaged disk
 * is no error: some of that may be left undone.
 */
void ram_reset_qcow2_drop_vmstate(BlockDriverState *bs, int64_t file_length);

#endif
