/*
 * The snapshots that this QEMU knows
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef MIGRATION_RAM_RESET_SNAPSHOT_H
#define MIGRATION_RAM_RESET_SNAPSHOT_H

#include "block/snapshot.h"
#include "qapi/qapi-types-ram-reset.h"
#include "migration/ram-reset/vmstate/cache.h"
#include "migration/ram-reset/vmstate/summary.h"

/**
 * RamResetSnapshot: the object for one known snapshot
 *
 * A load or a save gets it once, by ram_reset_snapshot_get(), and passes it on.
 * Each member belongs to the file named here.  All members need the BQL.
 *
 * Facts about the snapshot, which stay true while QEMU runs:
 * @key: identifies an entry in the list of snapshots of an image.  A snapshot
 *     that is saved again gets another id or date, so another key.  The key has
 *     a node name, so it is valid in this QEMU only.
 * @node: the name of the node with the image
 * @info: the entry
 * @summary: the summary of the VM state; NULL before it was read
 * @ram_end: the position in the VM state of the footer of the last RAM section,
 *     in bytes; 0 if it is unknown, or if something else lies between RAM
 *     sections, other than the first two
 *
 * A snapshot that is in memory only has, until it is deleted:
 * @vmstate: the VM state, with no page of RAM; NULL if an image has it
 * @digest: the checksum of RAM for verify=on; NULL if that was off
 * @storing: a job stores it in the image (ram-reset/store.c)
 *
 * Set by the user, until the snapshot is deleted or overwritten:
 * @pinned: the snapshot stays known when there is no room (ram-reset/pin.c)
 *
 * State for a rewind, which a snapshot has until its point is dropped:
 * @point: the number of the point with its RAM; it may have been dropped, see
 *     ram_reset_has_point() (ram-reset/baseline.c)
 * @ignore_shared: the point was taken with x-ignore-shared on
 * @was_rewound: a load has rewound to the point
 * @cache: the cached VM state, without RAM (vmstate/cache.c)
 * @sections, @sections_read: the section of each device in @cache
 *     (ram-reset/devices.c)
 * @map: the memory map, of ram_reset_map_copy()
 *
 * State of the machine at the end of the last load or save of the snapshot,
 * which only the current snapshot has:
 * @has_devices: the copies of devices are of this snapshot
 *     (ram-reset/devices.c)
 */
typedef struct RamResetSnapshot {
    char *key;
    char *node;
    QEMUSnapshotInfo info;
    RamResetSummary *summary;
    int64_t ram_end;

    GBytes *vmstate;
    char *digest;
    bool storing;
    bool pinned;
    uint64_t point;
    bool ignore_shared, was_rewound;
    VMStateCache cache;
    bool sections_read, has_devices;
    GHashTable *sections;
    GArray *map;

    uint64_t last_use;          /* private */
} RamResetSnapshot;

/**
 * ram_reset_snapshot_get: find or make the object for @sn in @bs
 *
 * Returns: a borrowed reference.  The table has 256 objects beside those of
 *     pinned snapshots: this one lives while it is the current snapshot, and
 *     until 255 others have been used.
 */
RamResetSnapshot *ram_reset_snapshot_get(BlockDriverState *bs,
                                         const QEMUSnapshotInfo *sn);

/**
 * ram_reset_snapshot_set_current: the machine has, or is about to have, the
 * state of @s; NULL if the state is of no snapshot
 *
 * Drops the copies of devices of the previous current snapshot, and all its
 * state for a rewind if it has no point.
 */
void ram_reset_snapshot_set_current(RamResetSnapshot *s);

/**
 * ram_reset_snapshot_is_pinned: whether @s stays known when there is no room,
 * because it is in memory only or the user has pinned it
 */
static inline bool ram_reset_snapshot_is_pinned(const RamResetSnapshot *s)
{
    return s->vmstate || s->pinned;
}

/**
 * ram_reset_snapshot_current: the snapshot of the last load or save
 *
 * Returns: a borrowed reference; NULL if there was none, or the last load has
 *     failed
 */
RamResetSnapshot *ram_reset_snapshot_current(void);

/**
 * ram_reset_snapshot_forget: @sn in @bs is being deleted; free its state, and
 * the point with its RAM
 */
void ram_reset_snapshot_forget(BlockDriverState *bs,
                               const QEMUSnapshotInfo *sn);

/**
 * ram_reset_snapshot_drop_oldest: drop the point of the snapshot that was used
 * least lately, and its state for a rewind
 *
 * Does not drop that of the current snapshot, nor of a pinned one.
 *
 * @was_rewound: set to whether a load has rewound to it; may be NULL
 *
 * Returns: false if no other snapshot has a point and is not pinned
 */
bool ram_reset_snapshot_drop_oldest(bool *was_rewound);

/**
 * ram_reset_snapshot_find: the object for @sn in @bs
 *
 * Returns: a borrowed reference, which does not count as use; NULL if there is
 *     none
 */
RamResetSnapshot *ram_reset_snapshot_find(BlockDriverState *bs,
                                          const QEMUSnapshotInfo *sn);

/**
 * ram_reset_snapshots: all objects, the one used last first
 *
 * Returns: a list, owned by the caller, of borrowed references
 */
GList *ram_reset_snapshots(void);

/**
 * ram_reset_snapshot_find_in_memory: the snapshot @tag that is in memory only
 *
 * Returns: a borrowed reference to the one used last, which does not count as
 *     use; NULL if there is none
 */
RamResetSnapshot *ram_reset_snapshot_find_in_memory(const char *tag);

/**
 * ram_reset_snapshot_find_point: the snapshot with the point of this number
 *
 * Returns: a borrowed reference, which does not count as use; NULL if there is
 *     none
 */
RamResetSnapshot *ram_reset_snapshot_find_point(uint64_t point);

/**
 * ram_reset_snapshot_stored: the image has the VM state of @s, which was in
 * memory only
 *
 * @size: its bytes
 * @ram_end: as in RamResetSnapshot
 */
void ram_reset_snapshot_stored(RamResetSnapshot *s, uint64_t size,
                               int64_t ram_end);

/**
 * ram_reset_snapshot_is_gone: whether @bs does not list @sn any more
 *
 * Returns: false also if the list cannot be read
 */
bool ram_reset_snapshot_is_gone(BlockDriverState *bs,
                                const QEMUSnapshotInfo *sn);

/**
 * ram_reset_snapshot_has_vmstate: whether @sn in @bs has a VM state, in the image
 * or in memory
 */
bool ram_reset_snapshot_has_vmstate(BlockDriverState *bs,
                                    const QEMUSnapshotInfo *sn);

/**
 * ram_reset_snapshots_trim: free the state for a rewind of all snapshots whose
 * point has been dropped, and all of pinned snapshots that are not in their
 * image any more
 */
void ram_reset_snapshots_trim(void);

/*
 * @bs in these functions is the image with the VM state of @s; the snapshot
 * need not be the current one in the image.  With the BQL held.
 */

/**
 * ram_reset_snapshot_summary: the summary of the VM state of @s
 *
 * The first call reads it.
 *
 * Returns: a borrowed reference; NULL with @errp set if there is no VM state,
 *     or it is damaged
 */
const RamResetSummary *ram_reset_snapshot_summary(RamResetSnapshot *s,
                                                  BlockDriverState *bs,
                                                  Error **errp);

/**
 * ram_reset_snapshot_identity: a text that identifies the RAM of @s
 *
 * @shared: the identity is for a template with shared RAM
 *
 * The identity finds a template, which outlives QEMU.  It is valid for any copy
 * of the image, and any QEMU: it has a checksum of samples of the VM state in
 * place of the node name.  The first call reads these samples.  Call this only
 * if ram_reset_templates_wanted().
 *
 * Returns: a text, freed by the caller; NULL if the VM state cannot be read
 *     without a load
 */
char *ram_reset_snapshot_identity(RamResetSnapshot *s, BlockDriverState *bs,
                                  bool shared);

/**
 * ram_reset_template_identity: the identity of the template that a load of @s
 * uses, and a save or load of @s makes, with the current migration capabilities
 *
 * Returns: a text, freed by the caller; NULL if @s may have no template
 */
char *ram_reset_template_identity(RamResetSnapshot *s, BlockDriverState *bs);

/** ram_reset_exists: whether all disks have snapshot @name; BQL held */
bool ram_reset_exists(const char *name);

#endif
