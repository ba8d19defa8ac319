/*
 * QEMU's qcow2 driver, looked at from outside
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef MIGRATION_RAM_RESET_QCOW2_H
#define MIGRATION_RAM_RESET_QCOW2_H

#include "block/block.h"

/* All functions need the BQL and a drained @bs, which may be a filter or raw */

/**
 * ram_reset_qcow2_file_length: the length of the file of @bs
 *
 * Returns: the length in bytes; -1 if @bs is no qcow2 image
 */
int64_t ram_reset_qcow2_file_length(BlockDriverState *bs);

/**
 * ram_reset_qcow2_list_position: the position of the list of snapshots in the
 * file of @bs
 *
 * qcow2 writes each new list to another place, and notes it when the list has
 * been written.
 *
 * Returns: the position in bytes, 0 for an empty list; -1 if @bs is no qcow2
 *     image
 */
int64_t ram_reset_qcow2_list_position(BlockDriverState *bs);

/**
 * ram_reset_qcow2_clear_vmstate: take the VM state out of the active layer
 *
 * A load leaves the VM state there, and shares all of its clusters with the
 * snapshot: a save would copy each of them, with a flush, to write over it.  A
 * full or damaged disk is no error: some clusters may be left.
 */
void ram_reset_qcow2_clear_vmstate(BlockDriverState *bs);

/**
 * ram_reset_qcow2_drop_vmstate: free the VM state of a failed save in the
 * active layer
 *
 * @file_length: the result of ram_reset_qcow2_file_length() before the save
 *
 * Then cuts off the unused end of the file, but not below @file_length.  Errors
 * of a full or damaged disk are ignored: some clusters may stay allocated.
 */
void ram_reset_qcow2_drop_vmstate(BlockDriverState *bs, int64_t file_length);

#endif
