/*
 * RAM reset: which snapshot can be rewound to
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef MIGRATION_RAM_RESET_BASELINE_H
#define MIGRATION_RAM_RESET_BASELINE_H

#include "migration/ram-reset/snapshot.h"
#include "system/ram-reset/rewind/blockers.h"

/*
 * With rewind=on, RAM has a baseline: the content of one snapshot, which
 * ram_reset_take_baseline() has noted.  All of these need the BQL.
 */

/**
 * ram_reset_snapshot_rewind_blocker: why the snapshot @s has to be loaded as a
 * whole
 *
 * Walks all RAM blocks and memory listeners: a load asks before the system
 * reset and after it, and not again.
 *
 * Returns: a blocker, valid until the next call; NULL if ram_reset_rewind()
 *     makes RAM what @s has
 */
const RamResetBlocker *
ram_reset_snapshot_rewind_blocker(const RamResetSnapshot *s);

/**
 * ram_reset_baseline_of_load: RAM is what @s has, which has been loaded as a
 * whole
 *
 * RAM is the baseline from now on and @s the current snapshot, unless the
 * baseline cannot be taken, or the baselines of the loads before were wasted
 * and this load has no template either.  There is no baseline of a snapshot
 * without @ram_end.
 */
void ram_reset_baseline_of_load(RamResetSnapshot *s);

/**
 * ram_reset_baseline_of_save: the same of @s that has been saved, except that
 * wasted baselines do not matter
 */
void ram_reset_baseline_of_save(RamResetSnapshot *s);

/**
 * ram_reset_baseline_tag: the name of its snapshot; NULL if there is none
 */
const char *ram_reset_baseline_tag(void);

#endif
