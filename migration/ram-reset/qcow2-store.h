/*
 * Storing a VM state in a qcow2 image behind the guest's back
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef MIGRATION_RAM_RESET_QCOW2_STORE_H
#define MIGRATION_RAM_RESET_QCOW2_STORE_H

#include "block/snapshot.h"

/*
 * The VM state goes to clusters of its own, which nothing in the image names
 * until the end.  Neither the guest nor saves, loads and deletions of other
 * snapshots meet them.  If QEMU is killed before the end, they stay allocated,
 * and qemu-img check -r leaks frees them.
 *
 * All functions but qcow2_store_co_write() and qcow2_store_co_flush() change
 * the image's tables: call them with the BQL held, not in a coroutine, and not
 * while another function changes the list of snapshots.
 */
typedef struct Qcow2Store Qcow2Store;

/**
 * qcow2_store_new: begin to store a VM state in @bs
 *
 * Returns: an object for qcow2_store_free(); NULL with @errp set if @bs is no
 *     qcow2 image, or one with an encryption
 */
Qcow2Store *qcow2_store_new(BlockDriverState *bs, Error **errp);

/**
 * qcow2_store_free: end; frees all clusters, unless they were attached
 */
void qcow2_store_free(Qcow2Store *store);

/**
 * qcow2_store_piece: bytes of a piece, a multiple of the size of clusters
 */
size_t qcow2_store_piece(const Qcow2Store *store);

/**
 * qcow2_store_next: find room for the next piece of the VM state
 *
 * @bytes: its bytes; a multiple of the size of clusters
 *
 * Returns: false with @errp set if there is none
 */
bool qcow2_store_next(Qcow2Store *store, uint64_t bytes, Error **errp);

/**
 * qcow2_store_tables: find room for the tables, after the last piece
 *
 * @tables, @bytes: set to their content, to be freed with qemu_vfree(); the
 *     caller writes it as it writes a piece
 *
 * Returns: false with @errp set if there is none
 */
bool qcow2_store_tables(Qcow2Store *store, uint8_t **tables, uint64_t *bytes,
                        Error **errp);

/**
 * qcow2_store_co_write: write to the room that was found last
 *
 * Returns: 0, or -errno
 */
int coroutine_fn qcow2_store_co_write(Qcow2Store *store, const uint8_t *buf,
                                      uint64_t bytes);

/**
 * qcow2_store_co_flush: make all that was written durable
 *
 * So the flushes of qcow2_store_attach() have little to do.
 *
 * Returns: 0, or -errno
 */
int coroutine_fn qcow2_store_co_flush(Qcow2Store *store);

/**
 * qcow2_store_attach: make what was written the VM state of @sn, which has none
 *
 * Drains the image.  The list of snapshots changes at once: if QEMU is killed,
 * @sn has the VM state or it has not.
 *
 * @size: bytes of the VM state
 *
 * Returns: false with @errp set if @sn is as before
 */
bool qcow2_store_attach(Qcow2Store *store, const QEMUSnapshotInfo *sn,
                        uint64_t size, Error **errp);

#endif
