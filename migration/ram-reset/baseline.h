/*
 * The snapshot that a load can rewind to
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef MIGRATION_RAM_RESET_BASELINE_H
#define MIGRATION_RAM_RESET_BASELINE_H

#include "migration/ram-reset/snapshot.h"
#include "system/ram-reset/rewind/blockers.h"

/*
 * With rewind=on, the RAM of snapshots is recorded by ram_reset_take_point().
 * @store is a store of the snapshot's pages, which the function takes over, or
 * NULL.  All functions need the BQL.
 */

/**
 * ram_reset_snapshot_rewind_blocker: the reason why a load of @s is no rewind
 *
 * Walks all RAM blocks and memory listeners, so a load calls this only once
 * before the system reset and once after it.
 *
 * Returns: a blocker, valid until the next call; NULL if ram_reset_rewind() can
 *     restore the RAM of @s
 */
const RamResetBlocker *
ram_reset_snapshot_rewind_blocker(const RamResetSnapshot *s);

/**
 * ram_reset_baseline_of_load: take a baseline of RAM after a load of @s that
 * was no rewind, and make @s the current snapshot
 *
 * Takes none with mapped-ram, or if @s has no @ram_end.  Does nothing but block
 * the baseline if the previous points were wasted and this load has no template,
 * unless @s was the current snapshot or is pinned.
 */
void ram_reset_baseline_of_load(RamResetSnapshot *s, RamResetPageStore *store);

/**
 * ram_reset_ram_behind_end: a load has changed RAM after a baseline was taken
 * of it
 *
 * A damaged VM state can have more RAM behind its end, which no point has: all
 * points are dropped.
 *
 * @err: not NULL; set with verify=on, unless it is set already
 */
void ram_reset_ram_behind_end(Error **err);

/**
 * ram_reset_baseline_of_save: take a baseline of RAM after a save of @s, and
 * make @s the current snapshot
 *
 * Takes none with mapped-ram, or if @s has no @ram_end.
 */
void ram_reset_baseline_of_save(RamResetSnapshot *s, RamResetPageStore *store);

/**
 * ram_reset_baseline_of_memory: take a point of RAM for a save of a snapshot
 * that is in memory only
 *
 * Returns: the number of the point, which the caller pins or drops; 0 with
 *     @errp set on failure
 */
uint64_t ram_reset_baseline_of_memory(Error **errp);

/**
 * ram_reset_baseline_of_incoming: take a baseline of RAM that a migration has
 * loaded from a file, which ram_reset_has_template() is true for
 */
void ram_reset_baseline_of_incoming(void);

/**
 * ram_reset_note_rewind: a load rewinds to @s
 */
void ram_reset_note_rewind(RamResetSnapshot *s);

/**
 * ram_reset_baseline_tag: the name of the snapshot that a load can rewind to
 *
 * Returns: a text, valid while the snapshot is known; NULL if there is none
 */
const char *ram_reset_baseline_tag(void);

#endif
