/*
 * Holding clusters of a snapshot in a qcow2 image
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef MIGRATION_RAM_RESET_QCOW2_HOLD_H
#define MIGRATION_RAM_RESET_QCOW2_HOLD_H

#include "block/block.h"

/*
 * A held cluster has one more reference in the image, so it keeps its content
 * when the snapshot is deleted.  If QEMU is killed, it leaks.  All functions
 * need the BQL; those that change refcounts are called as those of
 * qcow2-store.h.
 */
typedef struct Qcow2Hold Qcow2Hold;

/**
 * qcow2_hold_new: hold none of these clusters yet
 *
 * @bs: the qcow2 image itself
 * @clusters: the positions of @nr clusters in its file; taken over
 */
Qcow2Hold *qcow2_hold_new(BlockDriverState *bs, uint64_t *clusters,
                          uint64_t nr);

/**
 * qcow2_hold_next: hold some of the clusters that are not held yet
 *
 * Returns: 0, or -errno: the image cannot have more references to one, or it
 *     must not be written to
 */
int qcow2_hold_next(Qcow2Hold *h);

/* Whether all clusters are held */
bool qcow2_hold_is_complete(const Qcow2Hold *h);

/* The positions of all clusters */
const uint64_t *qcow2_hold_clusters(const Qcow2Hold *h);

/**
 * qcow2_hold_co_read: read clusters that are held
 *
 * @list: uint64_t, their numbers
 * @buf: gets their content, one after another
 *
 * Returns: 0, or -errno
 */
int coroutine_fn qcow2_hold_co_read(const Qcow2Hold *h, const GArray *list,
                                    uint8_t *buf);

/**
 * qcow2_hold_release_next: release some of the clusters
 *
 * @but: an array of uint64_t; cluster N stays held for good if this has its
 *     position at index N.  NULL: all are released.  It is the same in all
 *     calls, and must be there until qcow2_hold_free()
 *
 * Returns: whether there are more
 */
bool qcow2_hold_release_next(Qcow2Hold *h, const GArray *but);

/**
 * qcow2_hold_free: free @h, all of which has been released
 *
 * @gone: the snapshot has been deleted.  The active layer may be the last one
 *     that has a cluster, and gets the mark of that; this drains the image.  If
 *     the mark cannot be written, the clusters leak
 */
void qcow2_hold_free(Qcow2Hold *h, bool gone);

#endif
