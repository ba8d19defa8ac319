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

/* Set when a load begins to revert a disk; the load clears it before. BQL. */
extern bool ram_reset_disk_changed;

/**
 * ram_reset_disk_is_at: whether a qcow2 image is at a snapshot already
 *
 * @active: the active L1 table
 * @snapshot: that of the snapshot, big-endian, of the same length
 *
 * If both are equal, nothing has been written since the snapshot was loaded:
 * the first write to a shared L2 table would have put a copy of it into
 * @active.
 *
 * Returns: false if the disk is going to be reverted.  Then it counts as
 *     changed, and @snapshot loses its marks: it becomes the active table, and
 *     its L2 tables are still the snapshot's as well.
 */
bool ram_reset_disk_is_at(const uint64_t *active, uint64_t *snapshot,
                          unsigned len);

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
