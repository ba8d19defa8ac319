/*
 * The way in which a load makes the machine what the snapshot has
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef MIGRATION_RAM_RESET_PLAN_H
#define MIGRATION_RAM_RESET_PLAN_H

#include "migration/ram-reset/snapshot.h"
#include "system/ram-reset/rewind/blockers.h"

typedef enum LoadWay {
    LOAD_WHOLE,                 /* all of the VM state is read */
    LOAD_TEMPLATE,              /* RAM is a template's, devices are read */
    LOAD_REWIND,                /* RAM is put back, changed devices are read */
} LoadWay;

/**
 * LoadPlan: decided before the system reset, which relies on it, and checked
 * after it
 *
 * A rewind leaves devices, ROMs and the memory map alone in the reset, and does
 * not read their state afterwards.  Both must agree, so the plan is given up as
 * a whole.  Starts as zeroed memory, LOAD_WHOLE.
 *
 * @snapshot: the snapshot that is loaded
 * @blocker: why it is not a rewind, with rewind=on; else NULL
 * @identity: of the template that is looked for, or made if there is none; NULL
 *     if the snapshot may have none, or the load is a rewind
 * @ram_end: the position in the VM state where reading goes on instead of RAM;
 *     0 if RAM is read
 * @unchanged: the number of devices that are left alone
 */
typedef struct LoadPlan {
    RamResetSnapshot *snapshot;
    LoadWay way;
    RamResetBlocker *blocker;
    char *identity;
    int64_t ram_end;
    unsigned unchanged;
} LoadPlan;

/**
 * load_plan_decide: choose the way
 *
 * @p: zeroed memory
 * @bs: where the VM state of @s is; disks have been reverted
 *
 * Unless the plan is a rewind, the baseline is dropped.
 */
void load_plan_decide(LoadPlan *p, RamResetSnapshot *s, BlockDriverState *bs);

/**
 * load_plan_freeze: the system reset comes next; freeze what it shall leave
 * alone
 */
void load_plan_freeze(LoadPlan *p);

/**
 * load_plan_check: the system has been reset; is the plan still good?
 *
 * @bs: as for load_plan_decide()
 *
 * If it is not, the plan is given up; if only a device was unplugged, all
 * devices are loaded.  The system is reset once more in both cases.
 */
void load_plan_check(LoadPlan *p, BlockDriverState *bs);

/**
 * load_plan_begin_ram: RAM becomes what the snapshot has, or zero if the plan
 * is LOAD_WHOLE
 */
void load_plan_begin_ram(LoadPlan *p);

/**
 * load_plan_give_up: RAM and all devices are loaded
 *
 * @why: the blocker, if it was a rewind
 *
 * After the system reset, devices that were left alone have to be reset.
 */
void load_plan_give_up(LoadPlan *p, const RamResetBlocker *why);

/**
 * load_plan_clear: free what the plan has
 */
void load_plan_clear(LoadPlan *p);

#endif
