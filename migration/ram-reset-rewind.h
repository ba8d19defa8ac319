/*
 * RAM reset: which snapshot can be rewound to
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef MIGRATION_RAM_RESET_REWIND_H
#define MIGRATION_RAM_RESET_REWIND_H

#include "block/snapshot.h"
#include "migration/qemu-file-types.h"

/*
 * What is kept by ram_reset_take_baseline() is the content of one snapshot.  BQL held.
 */

/*
 * Why the snapshot @sn in @bs has to be loaded as a whole, valid until the
 * next call; NULL if ram_reset_rewind() and ram_reset_snapshot_skip() will do.
 */
const char *ram_reset_snapshot_blocker(BlockDriverState *bs,
                                       const QEMUSnapshotInfo *sn);

/*
 * RAM is what @sn in @bs has, which was loaded as a whole, or saved.  It is
 * kept unless that is impossible; nor if loaded ones have been kept for
 * nothing, other than as templates.  With rewind=on only.
 *
 * @ram_end: where in the VM state the footer of RAM's last section is, with
 * nothing but RAM between that and its second; 0 if that is not so, or not
 * known, and then nothing is kept.
 */
void ram_reset_snapshot_loaded(BlockDriverState *bs,
                               const QEMUSnapshotInfo *sn, int64_t ram_end);
void ram_reset_snapshot_saved(BlockDriverState *bs, const QEMUSnapshotInfo *sn,
                              int64_t ram_end);

/*
 * That is @ram_end of what ram_reset_snapshot_blocker() had no blocker of; it is
 * going to be used.
 */
int64_t ram_reset_snapshot_ram_end(void);

/* Have @f, which is in RAM's second section, go on with that footer */
bool ram_reset_snapshot_skip(QEMUFile *f, int64_t ram_end);

/* The name of the snapshot that is kept; NULL if none is */
const char *ram_reset_snapshot_of_baseline(void);

/* Where in the VM state @f is; -1 if that cannot be told */
int64_t ram_reset_file_position(QEMUFile *f);

#endif
