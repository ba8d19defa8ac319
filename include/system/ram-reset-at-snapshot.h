/*
 * RAM reset: qcow2 nodes that show the disk of an internal snapshot
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef SYSTEM_RAM_RESET_AT_SNAPSHOT_H
#define SYSTEM_RAM_RESET_AT_SNAPSHOT_H

#include "block/block-io.h"
#include "block/snapshot.h"
#include "qemu/option.h"

/*
 * The option of qcow2.  A node that has it is read-only, and shows the disk of
 * the snapshot of this name, as large as it was then.  So an overlay can have
 * that as its backing file.
 */
#define RAM_RESET_INTERNAL_SNAPSHOT "internal-snapshot"

/**
 * ram_reset_absorb_qdict: qemu_opts_absorb_qdict() that takes qcow2's option
 * out of @options
 *
 * @bs: is being opened or reopened with @options and @flags
 *
 * Returns: false with @errp set if @bs would show a snapshot and could be
 *     written to, or a reopen changes the option
 */
bool ram_reset_absorb_qdict(BlockDriverState *bs, QemuOpts *opts,
                            QDict *options, int flags, Error **errp);

/**
 * ram_reset_at_snapshot: have @bs, which qcow2 is opening, show the snapshot
 * that its options name
 *
 * Called with the list of snapshots read, and bitmaps not yet.  The bitmaps are
 * those of the active layer, so @bs shows none.
 *
 * Returns: 0, also if the options name no snapshot; a negative errno with @errp
 *     set if @bs has no such snapshot
 */
int coroutine_mixed_fn GRAPH_RDLOCK
ram_reset_at_snapshot(BlockDriverState *bs, Error **errp);

/**
 * ram_reset_shown_snapshot: the snapshot that the qcow2 node @bs shows
 *
 * @sn: set to it
 *
 * Returns: false if @bs shows the active layer, or is of another format
 */
bool GRAPH_RDLOCK ram_reset_shown_snapshot(BlockDriverState *bs,
                                           QEMUSnapshotInfo *sn);

#endif
