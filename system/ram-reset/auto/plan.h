/*
 * ram-reset-auto: plan how one block is made zero in one load
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef RAM_RESET_AUTO_PLAN_H
#define RAM_RESET_AUTO_PLAN_H

#include "system/ram-reset/auto/history.h"
#include "system/ram-reset/auto/policy.h"
#include "system/ram-reset/block/block.h"

/**
 * AutoPlan: the decision for a block, from which the next loads learn
 *
 * @choice: a strategy, or a mix of two
 * @estimated_ns: expected time to make the block zero
 * @granule: pages that one fault brings
 * @keeps: nothing of the block can be discarded
 */
typedef struct AutoPlan {
    PolicyChoice choice;
    double estimated_ns;
    uint32_t granule;
    bool keeps;
} AutoPlan;

/**
 * auto_plan_cheapest: decide how @blk is made zero, and note that in @blk
 *
 * Fills in @blk's parts, data and cleared, and in its info the strategy, the
 * reason and the decision.
 *
 * @rr: the object that is reported as the one that decided; limits the threads
 * @objective: the quantity to minimise
 * @costs: costs for the memory of @blk
 * @history: of blocks like @blk; is updated with the populated ranges
 */
AutoPlan auto_plan_cheapest(RamReset *rr, RamResetBlock *blk,
                            RamResetObjective objective,
                            const MemoryCosts *costs, History *history);

/** auto_plan_without_costs: clear @blk in place; its info has no decision */
void auto_plan_without_costs(RamReset *rr, RamResetBlock *blk);

#endif
