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
 * ram_reset_qcow2_drop_vmstate: free what a failed save has written
 *
 * @file_length: of ram_reset_qcow2_file_length(), before the save
 *
 * Frees the clusters of the VM state that the active layer has, and cuts off
 * the end of the file where nothing is used, down to @file_length at most.
 * Does what is possible: a disk that is full or damaged gives no error.
 */
void ram_reset_qcow2_drop_vmstate(BlockDriverState *bs, int64_t file_length);

#endif
