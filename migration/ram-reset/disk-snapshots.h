/*
 * The snapshots with one name in all disks that take part
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef MIGRATION_RAM_RESET_DISK_SNAPSHOTS_H
#define MIGRATION_RAM_RESET_DISK_SNAPSHOTS_H

#include "block/snapshot.h"
#include "qapi/qapi-builtin-types.h"

/*
 * @devices in this file are the nodes that the user has named, if @has_devices;
 * else all disks take part that QEMU includes by default.  All functions need
 * the BQL.
 */

/**
 * DiskSnapshot: a snapshot in one disk
 *
 * @bs: holds a reference, since a disk may be unplugged during a save or a load
 * @node: the node whose list of snapshots has @sn: @bs, or a node below it if
 *     @bs inherits the snapshot (ram-reset/inherited.c); borrowed from @bs
 * @sn: an entry in the list of snapshots of @node
 */
typedef struct DiskSnapshot {
    BlockDriverState *bs, *node;
    QEMUSnapshotInfo sn;
} DiskSnapshot;

/**
 * ram_reset_disks: the disks that take part in a snapshot
 *
 * Returns: an array of referenced BlockDriverState; freeing it drops the
 *     references
 */
GPtrArray *ram_reset_disks(bool has_devices, strList *devices);

/**
 * ram_reset_disk_snapshots: all snapshots with the name @name in @disks, or all
 * if it is NULL
 *
 * Returns: an array of DiskSnapshot, in the order of the disks and of their
 *     lists, without those that a disk inherits; freeing it drops the references
 */
GArray *ram_reset_disk_snapshots(const GPtrArray *disks, const char *name);

/**
 * ram_reset_snapshots_made_together: choose a snapshot for each disk
 *
 * @disks: of ram_reset_disks()
 * @bs: the disk with the VM state; becomes the node with it
 * @sn: a snapshot of @bs; becomes the first one with its name for which each
 *     disk has a snapshot made together with it, those that disks inherit last
 *
 * If QEMU is killed during savevm, some disks may have two snapshots with one
 * name, and other disks one.  A load must not mix them.
 *
 * Returns: an array of one DiskSnapshot for each disk, or NULL with @errp set
 *     if there is no such snapshot, or a disk cannot be reverted to it; @bs and
 *     @sn are unchanged then
 */
GArray *ram_reset_snapshots_made_together(const GPtrArray *disks,
                                          BlockDriverState **bs,
                                          QEMUSnapshotInfo *sn, Error **errp);

/**
 * ram_reset_revert: revert each disk to its snapshot, with I/O drained
 *
 * @snapshots: of ram_reset_snapshots_made_together()
 * @changed: set to true if a disk may have changed, also after an error
 *
 * Returns: false with @errp set at the first disk that cannot be reverted
 */
bool ram_reset_revert(const GArray *snapshots, bool *changed, Error **errp);

#endif
