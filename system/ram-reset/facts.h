/*
 * ram-reset-auto: what there is to do, and what past loads have shown
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef RAM_RESET_FACTS_H
#define RAM_RESET_FACTS_H

#include "internal.h"
#include "policy.h"

/*
 * What is known of one RAM block, from load to load.  Both the guest and the
 * snapshot are expected to do what they did the last time.  Of chunks that
 * are cleared the pages that were not zero tell what the guest has touched;
 * of those that were discarded it is the pages that are there again.
 */
typedef struct Facts Facts;

/* For a block that @blk->map describes; free with facts_free() */
Facts *facts_new(const RamResetBlock *blk);
void facts_free(Facts *facts);

/* Whether @facts are of a block like @blk */
bool facts_fit(const Facts *facts, const RamResetBlock *blk);

/*
 * Before a load.  @populated: of PrimRange; @expected: bytes that the
 * snapshot may store, of use as long as nothing else is known of that
 */
void facts_update(Facts *facts, const GArray *populated, uint64_t expected);

/* False as long as it is guessed where the snapshot has something */
bool facts_are_learnt(const Facts *facts);

/* The chunks as facts_update() has found them, and their size in bytes */
const PolicyChunk *facts_chunks(const Facts *facts, size_t *nr, uint64_t *chunk);

/*
 * After a load: @blk->parts have been made zero, @blk->known tells what the
 * snapshot has written, @blk->cleared what was not zero.  @granule: pages that
 * a fault populates; @keeps: it cannot be discarded anyway.
 */
void facts_learn(Facts *facts, const RamResetBlock *blk, uint32_t granule,
                 bool keeps);

#endif
