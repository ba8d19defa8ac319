/*
 * Storing a VM state in a qcow2 image behind the guest's back
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef MIGRATION_RAM_RESET_QCOW2_STORE_H
#define MIGRATION_RAM_RESET_QCOW2_STORE_H

#include "block/snapshot.h"
#include "migration/ram-reset/qcow2.h"

/*
 * The VM state goes to clusters of its own, which nothing in the image names
 * until the end.  Neither the guest nor saves, loads and deletions of other
 * snapshots meet them.  If QEMU is killed before the end, they stay allocated,
 * and qemu-img check -r leaks frees them.  It may share clusters that are held
 * with another snapshot.
 *
 * All functions but those in coroutines change the image's tables: call them
 * with the BQL held, not in a coroutine, and not while another function changes
 * the list of snapshots.
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
 * qcow2_store_release_next: free some of the clusters, unless they are attached
 *
 * Returns: whether there are more
 */
bool qcow2_store_release_next(Qcow2Store *store);

/**
 * qcow2_store_free: free @store, all of which has been released or attached
 */
void qcow2_store_free(Qcow2Store *store);

/**
 * qcow2_store_piece: bytes of a piece, a multiple of the size of clusters
 */
size_t qcow2_store_piece(const Qcow2Store *store);

/* The size of a cluster in bytes; the qcow2 image itself */
size_t qcow2_store_cluster(const Qcow2Store *store);
BlockDriverState *qcow2_store_image(const Qcow2Store *store);

/* The places of the VM state's clusters, for ram_reset_qcow2_places_free() */
Qcow2Places *qcow2_store_places(const Qcow2Store *store);

/**
 * qcow2_store_share: begin the VM state with @nr clusters that are held
 *
 * Call this before qcow2_store_next().  Free the hold before the store.
 *
 * @clusters: their positions in the file
 */
void qcow2_store_share(Qcow2Store *store, const uint64_t *clusters,
                       uint64_t nr);

/**
 * qcow2_store_attached: the clusters of the VM state if it has been attached
 *
 * Returns: an array of uint64_t, owned by @store; NULL if it is not attached
 */
const GArray *qcow2_store_attached(const Qcow2Store *store);

/**
 * qcow2_store_replace: find room for other clusters in place of shared ones
 *
 * @list: uint64_t, numbers of shared clusters.  The room has one cluster for
 *     each, in the same order
 *
 * Returns: false with @errp set if there is none
 */
bool qcow2_store_replace(Qcow2Store *store, const GArray *list, Error **errp);

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
 * qcow2_store_count: count the clusters of the VM state and its L2 tables, when
 * these have been written
 *
 * @shared: set to those that another snapshot had before
 * @own: set to all others
 */
void qcow2_store_count(const Qcow2Store *store, uint64_t *shared,
                       uint64_t *own);

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
