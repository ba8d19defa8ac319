/*
 * ram-reset-auto: what past loads have shown of a block
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef RAM_RESET_AUTO_HISTORY_H
#define RAM_RESET_AUTO_HISTORY_H

#include "system/ram-reset/auto/policy.h"
#include "system/ram-reset/block/block.h"

/*
 * Kept from load to load, for one RAM block.  The guest and the snapshot are
 * both expected to do what they did the last time.  Of chunks that a load
 * clears, the pages that were not zero tell what the guest has touched; of
 * those that it discards, the pages that are there again at the next load.
 */
typedef struct History History;

/* For a block that @blk->map describes; free with history_free() */
History *history_new(const RamResetBlock *blk);
void history_free(History *history);

/* Whether @history is of a block like @blk */
bool history_fits(const History *history, const RamResetBlock *blk);

/*
 * Before a load.  @populated: of PrimRange; @expected: bytes that the snapshot
 * may store, of use as long as no load has shown more than that
 */
void history_update(History *history, const GArray *populated,
                    uint64_t expected);

/* False as long as it is a guess where the snapshot has something */
bool history_is_learnt(const History *history);

/* The chunks as history_update() has found them, and their size in bytes */
const PolicyChunk *history_chunks(const History *history, size_t *nr,
                                  uint64_t *chunk);

/*
 * After a load: @blk->parts have been made zero, @blk->known tells what the
 * snapshot has written, @blk->cleared what was not zero.  @granule: pages that
 * a fault populates; @keeps: nothing of @blk can be discarded.
 */
void history_learn(History *history, const RamResetBlock *blk,
                   uint32_t granule, bool keeps);

#endif
