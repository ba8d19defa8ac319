/*
 * ram-reset-auto: the history of a block in past loads
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef RAM_RESET_AUTO_HISTORY_H
#define RAM_RESET_AUTO_HISTORY_H

#include "system/ram-reset/auto/policy.h"
#include "system/ram-reset/block/block.h"

/*
 * The history of one RAM block.  It is assumed that the guest and the snapshot
 * do the same as the last time.  A page that the guest has touched is seen in
 * two ways: in a cleared chunk, the page was not zero; in a discarded chunk, it
 * is present again at the next load.
 */
typedef struct History History;

/* Make one for the block that @blk->map describes; free with history_free() */
History *history_new(const RamResetBlock *blk);
void history_free(History *history);

/* Whether @history is of a block like @blk */
bool history_fits(const History *history, const RamResetBlock *blk);

/*
 * Update before a load.  @populated: array of PrimRange; @expected: number of
 * bytes that the snapshot may store, used until a load has been seen
 */
void history_update(History *history, const GArray *populated,
                    uint64_t expected);

/* False while the position of the snapshot's pages is a guess */
bool history_is_learnt(const History *history);

/* The chunks found by history_update(), and their size in bytes */
const PolicyChunk *history_chunks(const History *history, size_t *nr,
                                  uint64_t *chunk);

/*
 * Learn after a load: @blk->parts have been made zero, @blk->known shows the
 * pages that the snapshot has written, @blk->cleared those that were not zero.
 * @granule: pages that a fault populates; @keeps: nothing of @blk can be
 * discarded.
 */
void history_learn(History *history, const RamResetBlock *blk,
                   uint32_t granule, bool keeps);

#endif
