/*
 * QEMU's qcow2 driver, looked at from outside
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef MIGRATION_RAM_RESET_QCOW2_H
#define MIGRATION_RAM_RESET_QCOW2_H

#include "block/block.h"

/*
 * All functions need the BQL, and all but ram_reset_qcow2_read() a drained @bs.
 * It may be a filter, or raw.
 */

/**
 * ram_reset_qcow2_image: the qcow2 image with the VM state of @bs
 *
 * Returns: a borrowed reference; NULL if there is none
 */
BlockDriverState *GRAPH_RDLOCK ram_reset_qcow2_image(BlockDriverState *bs);

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

/**
 * ram_reset_qcow2_may_empty: whether ram_reset_qcow2_empty() can serve @bs
 */
bool GRAPH_RDLOCK ram_reset_qcow2_may_empty(BlockDriverState *bs);

/**
 * ram_reset_qcow2_empty: have the active layer of the overlay @bs have nothing,
 * so that its backing file shows through; snapshots stay
 *
 * @changed: set to true unless it has nothing already
 *
 * After a crash in between, the image is as before, or empty with clusters that
 * nothing names.
 *
 * Returns: 0 or a negative errno
 */
int ram_reset_qcow2_empty(BlockDriverState *bs, bool *changed);

/**
 * Qcow2Places: where in the file the clusters of a VM state are
 */
typedef struct Qcow2Places Qcow2Places;

/**
 * ram_reset_qcow2_find_vmstate: find the VM state of the active layer
 *
 * @end: the number of its bytes that are to be found
 *
 * Returns: their places, which stay right while a snapshot has the VM state; NULL
 *     if @bs is no qcow2 image, is encrypted, or lacks a part of the VM state
 */
Qcow2Places *ram_reset_qcow2_find_vmstate(BlockDriverState *bs, int64_t end);

/**
 * ram_reset_qcow2_places_new: the same for a VM state of which the caller knows
 * the clusters
 *
 * @clusters: uint64_t, the position of each in the file
 */
Qcow2Places *ram_reset_qcow2_places_new(size_t cluster_size,
                                        const GArray *clusters);

void ram_reset_qcow2_places_free(Qcow2Places *places);

/**
 * ram_reset_qcow2_places_copy: the positions of the first @nr clusters in the
 * file; owned by the caller
 */
uint64_t *ram_reset_qcow2_places_copy(const Qcow2Places *places, uint64_t nr);

/**
 * ram_reset_qcow2_read: read @len bytes of a VM state from @at on
 *
 * @places: found in the image of @bs; cover these bytes
 *
 * Returns: 0 or a negative errno
 */
int ram_reset_qcow2_read(BlockDriverState *bs, const Qcow2Places *places,
                         int64_t at, size_t len, uint8_t *buf);

/**
 * ram_reset_qcow2_node: the name of the node with the qcow2 image of @bs, which
 * need not be drained
 *
 * Returns: a borrowed text; NULL if there is none
 */
const char *ram_reset_qcow2_node(BlockDriverState *bs);

#endif
