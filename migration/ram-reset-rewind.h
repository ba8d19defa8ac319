/*
 * RAM reset: which snapshot can be rewound to
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef MIGRATION_RAM_RESET_REWIND_H
#define MIGRATION_RAM_RESET_REWIND_H

#include "block/snapshot.h"

/*
 * With rewind=on, RAM has a baseline: the content of one snapshot, which
 * ram_reset_take_baseline() has noted.  All of these need the BQL.
 */

/**
 * ram_reset_snapshot_rewind_blocker: why the snapshot @sn in @bs has to be
 * loaded as a whole
 *
 * Returns: a sentence, valid until the next call; NULL if ram_reset_rewind()
 *     makes RAM what @sn has
 */
const char *ram_reset_snapshot_rewind_blocker(BlockDriverState *bs,
                                              const QEMUSnapshotInfo *sn);

/**
 * ram_reset_baseline_of_load: RAM is what @sn in @bs has, which has been loaded
 * as a whole
 *
 * @ram_end: where in the VM state the footer of RAM's last section is, with
 *     nothing but RAM between that and its second; 0 or less if that is not so,
 *     or not known, and then there will be no baseline
 *
 * That is the baseline from now on, unless it cannot be taken, or those of
 * the loads before have been wasted and this one has no template either.
 */
void ram_reset_baseline_of_load(BlockDriverState *bs,
                                const QEMUSnapshotInfo *sn, int64_t ram_end);

/**
 * ram_reset_baseline_of_save: the same of @sn that has been saved, but that
 * wasted ones do not matter
 */
void ram_reset_baseline_of_save(BlockDriverState *bs,
                                const QEMUSnapshotInfo *sn, int64_t ram_end);

/**
 * ram_reset_baseline_ram_end: the @ram_end of the baseline, if it is that of
 * the snapshot @sn in @bs, and RAM can be rewound to it; else 0
 */
int64_t ram_reset_baseline_ram_end(BlockDriverState *bs,
                                   const QEMUSnapshotInfo *sn);

/**
 * ram_reset_baseline_use: RAM is going to be rewound to the baseline
 *
 * Returns: its @ram_end
 */
int64_t ram_reset_baseline_use(void);

/**
 * ram_reset_baseline_tag: the name of its snapshot; NULL if there is none
 */
const char *ram_reset_baseline_tag(void);

#endif
