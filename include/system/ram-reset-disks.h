/*
 * RAM reset: disks that snapshots do not include
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef SYSTEM_RAM_RESET_DISKS_H
#define SYSTEM_RAM_RESET_DISKS_H

#include "block/block-io.h"

/* Called for disks that are not read-only; NULL in programs like qemu-img */
extern bool (*ram_reset_excludes_disk_cb)(BlockDriverState *bs);

/*
 * Called before a snapshot of @bs is deleted that has this @id and @name, one of
 * which may be NULL
 */
extern void (*ram_reset_before_deletion_cb)(BlockDriverState *bs,
                                            const char *id, const char *name);

/* Set when a load begins to revert a disk; the load clears it before. BQL. */
extern bool ram_reset_disk_changed;

/* Set by a load while it reverts disks.  BQL. */
extern bool ram_reset_disk_reverting;

/**
 * ram_reset_disk_is_at: whether a qcow2 image is at a snapshot already
 *
 * @active: the active L1 table
 * @snapshot: that of the snapshot, big-endian, of the same length
 *
 * If both name the same tables, and none is marked as the active layer's own,
 * nothing has been written since the snapshot was saved or loaded: the first
 * write to a shared L2 table would have put a copy of it into @active.
 *
 * Returns: false if the disk is going to be reverted.  Then it counts as
 *     changed, and @snapshot loses its marks: it becomes the active table, and
 *     its L2 tables are still the snapshot's as well.
 */
bool ram_reset_disk_is_at(const uint64_t *active, uint64_t *snapshot,
                          unsigned len);

/**
 * ram_reset_disk_defers: whether a change of references by @addend is part of a
 * revert and needs no flush
 *
 * A revert counts the snapshot's clusters once more, writes its L1 table over
 * the active one, and counts the clusters of the old one once less.  The first
 * two steps must be on the disk, in this order, before a cluster is used again.
 * The third one may reach it with a later flush: if it never does, clusters that
 * nothing names stay allocated.
 */
static inline bool ram_reset_disk_defers(int addend)
{
    return ram_reset_disk_reverting && addend <= 0;
}

/**
 * ram_reset_disk_drops: whether a change of references by @addend is the third
 * step of a revert, which leaves marks in L2 tables alone
 *
 * The tables are freed, or other snapshots have them.  A freed table must not
 * stay in the cache as changed: it would be written when something else has its
 * cluster.  In a snapshot's table a mark would say that the active layer may
 * write in place, but the next revert removes it before it uses the table.
 */
static inline bool ram_reset_disk_drops(int addend)
{
    return ram_reset_disk_reverting && addend < 0;
}

/**
 * ram_reset_list_add: collect a part of a list of snapshots
 *
 * @offset: the position of the part in the image, in bytes, behind that of the
 *     last one; a gap is filled with zeros
 *
 * qcow2 writes four small parts for each snapshot, each by a thread of its own:
 * of 64 snapshots this takes longer than all else in a save.  Main thread.
 *
 * Returns: 0, as bdrv_pwrite()
 */
int ram_reset_list_add(int64_t offset, int64_t len, const void *part);

/**
 * ram_reset_list_write: write all collected parts at once
 *
 * Returns: 0, or a negative errno
 */
int coroutine_mixed_fn ram_reset_list_write(BdrvChild *file);

/**
 * ram_reset_before_deletion: a snapshot is about to be deleted
 *
 * RAM reset may have noted where pages are in it, and reads these now.
 *
 * @bs: the image; it need not be drained
 * @id, @name: those of the snapshot; one of them may be NULL
 *
 * Main thread.
 */
static inline void ram_reset_before_deletion(BlockDriverState *bs,
                                             const char *id, const char *name)
{
    if (ram_reset_before_deletion_cb) {
        ram_reset_before_deletion_cb(bs, id, name);
    }
}

/**
 * ram_reset_excludes_disk: whether a snapshot for which no disks are named
 * excludes @bs
 *
 * Read-only disks are excluded.  With a ram-reset object, so are the disks in
 * keep-disks=, and flashes: their content is a part of the VM state, and the
 * device writes it to its file when the VM runs after a load.
 *
 * The BQL and the graph's read lock are held.
 */
static inline bool ram_reset_excludes_disk(BlockDriverState *bs)
{
    return bdrv_is_read_only(bs) ||
           (ram_reset_excludes_disk_cb && ram_reset_excludes_disk_cb(bs));
}

#endif
