/*
 * ram-reset-auto: how one block is made zero in one load
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef RAM_RESET_AUTO_PLAN_H
#define RAM_RESET_AUTO_PLAN_H

#include "system/ram-reset/auto/history.h"
#include "system/ram-reset/auto/policy.h"
#include "system/ram-reset/block/block.h"

/**
 * AutoPlan: what was decided for a block, for those who learn from the load
 *
 * @choice: a strategy, or a mix of two
 * @estimated_ns: how long making the block zero is expected to take
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
 * Fills in @blk's parts, data and cleared, and of its info the strategy, the
 * reason and the decision.
 *
 * @rr: which the user is told has decided it; how many threads may clear
 * @objective: what to make small
 * @costs: what things cost for the memory that @blk is in
 * @history: of blocks like @blk; is brought up to date with what is populated
 */
AutoPlan auto_plan_cheapest(RamReset *rr, RamResetBlock *blk,
                            RamResetObjective objective,
                            const MemoryCosts *costs, History *history);

/**
 * auto_plan_without_costs: have @blk cleared in place; there is no decision in
 * its info
 */
void auto_plan_without_costs(RamReset *rr, RamResetBlock *blk);

#endif
