/*
 * Snapshots whose VM state in the image another one can share
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef MIGRATION_RAM_RESET_PARENTS_H
#define MIGRATION_RAM_RESET_PARENTS_H

#include "migration/ram-reset/page-store.h"

/* With the BQL held */

/**
 * RamResetParent: such a snapshot
 *
 * @store: of its pages; a reference
 * @point: the number of the point with its RAM
 * @ram_end, @ignore_shared: as in RamResetSnapshot
 */
typedef struct RamResetParent {
    RamResetPageStore *store;
    uint64_t point;
    int64_t ram_end;
    bool ignore_shared;
} RamResetParent;

/**
 * ram_reset_parents_add: @s is in an image, and has been recorded
 *
 * A few of these are known at a time: the first one and the last ones.
 *
 * @store: of its pages; the function takes the reference, and allows NULL
 */
void ram_reset_parents_add(const RamResetSnapshot *s, RamResetPageStore *store);

/**
 * ram_reset_parents_find: find the snapshot in @bs with most pages in common
 * with @s, which has a point
 *
 * Returns: a borrowed reference, valid until the next call; NULL if there is
 *     none
 */
const RamResetParent *ram_reset_parents_find(const RamResetSnapshot *s,
                                             BlockDriverState *bs);

/**
 * ram_reset_parents_drop: the image has other data than the store expects
 */
void ram_reset_parents_drop(const RamResetPageStore *store);

#endif
