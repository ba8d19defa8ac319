/*
 * The pages of a snapshot in its image
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef MIGRATION_RAM_RESET_PAGE_STORE_H
#define MIGRATION_RAM_RESET_PAGE_STORE_H

#include "migration/ram-reset/qcow2.h"
#include "migration/ram-reset/snapshot.h"
#include "migration/ram-reset/vmstate/page-places.h"
#include "system/ram-reset-rewind.h"

/* With the BQL held */

/**
 * page_store_new: a store of the pages in the VM state of the active layer
 *
 * @bs: a qcow2 image, drained
 * @places: of all pages that are not zero; the function takes ownership, and
 *     allows NULL
 *
 * The store notes where in the file the VM state is.  It does not keep the
 * image open, and finds out itself if the snapshot or the image is gone.
 *
 * Returns: a store, of use when page_store_set_snapshot() was called; NULL if a
 *     place is unknown, or the image is of another format or encrypted
 */
RamResetPageStore *page_store_new(BlockDriverState *bs, PagePlaces *places);

/**
 * page_store_set_snapshot: @s has the VM state from now on
 *
 * @store: NULL does nothing
 */
void page_store_set_snapshot(RamResetPageStore *store,
                             const RamResetSnapshot *s);

/**
 * page_store_of_stored: a store of the pages of @s, which has just been stored
 * in @bs
 *
 * @places, @clusters: its places; the function takes ownership, and allows NULL
 *     for @places
 *
 * Returns: a store; NULL if a place is unknown
 */
RamResetPageStore *page_store_of_stored(BlockDriverState *bs,
                                        const RamResetSnapshot *s,
                                        PagePlaces *places,
                                        Qcow2Places *clusters);

/**
 * page_store_ref: one more reference of @store, for ram_reset_page_store_free();
 * NULL is fine
 */
RamResetPageStore *page_store_ref(RamResetPageStore *store);

/**
 * page_store_has_snapshot: whether the image is there and has the snapshot
 */
bool page_store_has_snapshot(const RamResetPageStore *store);

/* The places of the pages, and of the clusters up to the end of RAM */
const PagePlaces *page_store_places(const RamResetPageStore *store);
const Qcow2Places *page_store_clusters(const RamResetPageStore *store);

#endif
