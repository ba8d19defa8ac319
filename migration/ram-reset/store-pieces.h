/*
 * The pieces in which a snapshot from memory is stored
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef MIGRATION_RAM_RESET_STORE_PIECES_H
#define MIGRATION_RAM_RESET_STORE_PIECES_H

#include "migration/ram-reset/qcow2-store.h"
#include "migration/ram-reset/snapshot.h"

/*
 * If a snapshot in the same image has the places of its pages known, the VM
 * state begins with that of this parent: clusters in which nothing differs are
 * shared, others are read, patched and written to new places.
 *
 * Functions without _co_ are called as those of qcow2-store.h, and all but the
 * first and the last ones only while the snapshot is there.
 */
typedef struct StorePieces StorePieces;

/**
 * store_pieces_new: begin to store @s, which is in memory only, in @bs
 *
 * Returns: an object for store_pieces_free(); NULL with @errp set if @s cannot
 *     be stored
 */
StorePieces *store_pieces_new(const RamResetSnapshot *s, BlockDriverState *bs,
                              Error **errp);

/**
 * store_pieces_end: free some of the clusters that were not attached
 *
 * Returns: whether to call it again.  If not, @p has nothing but its memory
 */
bool store_pieces_end(StorePieces *p);

/* After the last store_pieces_end() */
void store_pieces_free(StorePieces *p);

/**
 * store_pieces_share: find a parent, and hold some of its clusters
 *
 * Call this until it returns false, before the first piece.  @s: the snapshot
 */
bool store_pieces_share(StorePieces *p, const RamResetSnapshot *s);

/**
 * store_pieces_next: find room for the next piece
 *
 * store_pieces_co_read(), store_pieces_patch() and store_pieces_co_write()
 * follow, in this order.
 *
 * Returns: false with @errp set on failure
 */
bool store_pieces_next(StorePieces *p, Error **errp);

/* Whether store_pieces_next() has found that there is no piece any more */
bool store_pieces_are_done(const StorePieces *p);

/* Whether the piece has clusters of the parent; if not, skip the next two */
bool store_pieces_are_shared(const StorePieces *p);
int coroutine_fn store_pieces_co_read(StorePieces *p);
bool store_pieces_patch(StorePieces *p, Error **errp);

int coroutine_fn store_pieces_co_write(StorePieces *p);

/* Bytes of the piece that was found last, and those still to be written */
uint64_t store_pieces_bytes(const StorePieces *p);
uint64_t store_pieces_left(const StorePieces *p);

/**
 * store_pieces_tables: find room for the L2 tables, as the last piece
 */
bool store_pieces_tables(StorePieces *p, Error **errp);

/* Bytes of the VM state, and the place in it of the footer of RAM */
uint64_t store_pieces_size(const StorePieces *p);
int64_t store_pieces_ram_end(const StorePieces *p);

/**
 * store_pieces_become_parent: the VM state is attached to @s in @bs, and others
 * may share it
 */
void store_pieces_become_parent(StorePieces *p, BlockDriverState *bs,
                                const RamResetSnapshot *s);

Qcow2Store *store_pieces_store(const StorePieces *p);

#endif
