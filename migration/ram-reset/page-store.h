/*
 * The pages of a snapshot in its image
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef MIGRATION_RAM_RESET_PAGE_STORE_H
#define MIGRATION_RAM_RESET_PAGE_STORE_H

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

#endif
