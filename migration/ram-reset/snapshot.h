/*
 * The snapshots that this QEMU knows
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef MIGRATION_RAM_RESET_SNAPSHOT_H
#define MIGRATION_RAM_RESET_SNAPSHOT_H

#include "block/snapshot.h"
#include "migration/ram-reset/vmstate/cache.h"
#include "migration/ram-reset/vmstate/summary.h"

/**
 * RamResetSnapshot: all that is remembered of one snapshot
 *
 * A load or a save asks for it once, by ram_reset_snapshot_get(), and hands it
 * on.  Its members belong to the files named here, which document them; all
 * need the BQL.
 *
 * Facts, which stay true for as long as QEMU runs:
 * @key: the same entry in the list of snapshots of the same image.  A
 *     snapshot that is saved again gets another id, or another date, so another
 *     key.  It has a node name, which means nothing to another QEMU.
 * @info: the entry
 * @summary: what the VM state says of itself; NULL before it was read
 * @ram_end: the position in the VM state of the footer of RAM's last section,
 *     if there is nothing but RAM between that and RAM's second section; 0 if
 *     that is not known, or not so
 *
 * The state of the machine at the end of the last load or save of this
 * snapshot.  Only the current snapshot has it:
 * @cache: the VM state without RAM, in memory (vmstate/cache.c)
 * @has_baseline, @ignore_shared, @was_rewound: RAM's baseline is of it, and
 *     has been used (ram-reset/baseline.c)
 * @has_devices: the copies of devices are of it (ram-reset/devices.c)
 * @sections, @sections_read: where each device is in @cache
 *     (ram-reset/devices.c)
 * @map: the memory map, of ram_reset_map_copy()
 */
typedef struct RamResetSnapshot {
    char *key;
    QEMUSnapshotInfo info;
    RamResetSummary *summary;
    int64_t ram_end;

    VMStateCache cache;
    bool has_baseline, ignore_shared, was_rewound;
    bool has_devices, sections_read;
    GHashTable *sections;
    GArray *map;

    uint64_t last_use;          /* private */
} RamResetSnapshot;

/**
 * ram_reset_snapshot_get: the object for @sn in @bs
 *
 * It is made if there is none.
 *
 * Returns: a borrowed reference.  The table has room for 256: the object lives
 *     while it is the current one, and until 255 others have been asked for.
 */
RamResetSnapshot *ram_reset_snapshot_get(BlockDriverState *bs,
                                         const QEMUSnapshotInfo *sn);

/**
 * ram_reset_snapshot_set_current: the machine is, or is about to be, what @s
 * has; NULL if it is no snapshot's
 *
 * The state that the snapshot before it has of the machine is dropped.  RAM's
 * baseline is not: see ram_reset_block_baseline().
 */
void ram_reset_snapshot_set_current(RamResetSnapshot *s);

/**
 * ram_reset_snapshot_current: the snapshot that was loaded or saved last
 *
 * Returns: a borrowed reference; NULL if there is none, or the last load has
 *     failed
 */
RamResetSnapshot *ram_reset_snapshot_current(void);

/*
 * @bs in these functions is where the VM state of @s is; it need not be the
 * current one.
 */

/**
 * ram_reset_snapshot_summary: what the VM state of @s says of itself
 *
 * It is read once.
 *
 * Returns: a borrowed reference; NULL with @errp set if it is no VM state
 */
const RamResetSummary *ram_reset_snapshot_summary(RamResetSnapshot *s,
                                                  BlockDriverState *bs,
                                                  Error **errp);

/**
 * ram_reset_snapshot_identity: a text that is the same only if all of RAM is
 *
 * It holds in any copy of the image, and for any QEMU.  It has a checksum of
 * samples of the VM state instead of the node name, so it takes some reads the
 * first time.  Templates, which outlive QEMU, go by it.  As the RAM of a
 * template may be without shared blocks, the identity says that, too.
 *
 * @shared: the template has shared RAM, too
 *
 * Only where ram_reset_templates_wanted().
 *
 * Returns: a text, to be freed; NULL if the format of the image does not allow
 *     to look, or it cannot be read
 */
char *ram_reset_snapshot_identity(RamResetSnapshot *s, BlockDriverState *bs,
                                  bool shared);

/**
 * ram_reset_template_identity: of the template that a load of @s uses, and a
 * save or load of it makes, with migration's capabilities as they are
 *
 * Returns: a text, to be freed; NULL if @s may have no template
 */
char *ram_reset_template_identity(RamResetSnapshot *s, BlockDriverState *bs);

#endif
