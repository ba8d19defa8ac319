/*
 * The plan of a load: rewind, template or whole
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef MIGRATION_RAM_RESET_PLAN_H
#define MIGRATION_RAM_RESET_PLAN_H

#include "migration/ram-reset/snapshot.h"
#include "system/ram-reset/rewind/blockers.h"

typedef enum LoadWay {
    LOAD_WHOLE,                 /* QEMU reads all of the VM state */
    LOAD_TEMPLATE,              /* RAM is that of a file; devices are read */
    LOAD_REWIND,                /* RAM is restored; changed devices are read */
    LOAD_COPY,                  /* RAM is compared with that in memory */
} LoadWay;

/**
 * LoadPlan: the way of a load; decided before the system reset, which relies on
 * it, and checked after the reset
 *
 * A snapshot that is in memory only has no other way than LOAD_REWIND and
 * LOAD_COPY.
 *
 * In a rewind, the reset skips unchanged devices, ROMs and the memory map, and
 * QEMU does not read their state afterwards.  Both must agree, so the plan is
 * given up completely or not at all.  Starts as zeroed memory, LOAD_WHOLE.
 * All functions need the BQL.
 *
 * @snapshot: the snapshot that is loaded
 * @blocker: the reason why the load is no rewind, with rewind=on; else NULL
 * @identity: the identity of the template to find, or to make if there is none;
 *     NULL if the snapshot may have no template, or the load is a rewind
 * @ram_end: the position in the VM state behind RAM, in bytes, if RAM is
 *     skipped; else 0
 * @unchanged: the number of unchanged devices, which are not loaded
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
 * load_plan_decide: choose the way, after disks have been reverted
 *
 * @p: zeroed memory
 * @bs: the image with the VM state of @s
 *
 * Unless the plan is a rewind, the position of RAM is lost.
 */
void load_plan_decide(LoadPlan *p, RamResetSnapshot *s, BlockDriverState *bs);

/**
 * load_plan_freeze: freeze the memory map and unchanged devices, right before
 * the system reset
 */
void load_plan_freeze(LoadPlan *p);

/**
 * load_plan_check: check the plan, right after the system reset
 *
 * @bs: as for load_plan_decide()
 *
 * If there is a blocker now, gives the plan up.  If the reset has only
 * unplugged a device, changes the plan to load all devices.  Resets the system
 * once more in both cases.
 */
void load_plan_check(LoadPlan *p, BlockDriverState *bs);

/**
 * load_plan_begin_ram: restore RAM, or clear it if the plan is LOAD_WHOLE
 *
 * @errp: set if the reset has removed RAM of a snapshot in memory, or a page of
 *     the baseline cannot be read, so that the load must fail
 */
void load_plan_begin_ram(LoadPlan *p, Error **errp);

/**
 * load_plan_give_up: change the plan to load all of RAM and all devices
 *
 * @why: the blocker of a rewind, which is copied
 *
 * After the system reset, the caller must reset unchanged devices.
 */
void load_plan_give_up(LoadPlan *p, const RamResetBlocker *why);

/**
 * load_plan_clear: free the members of the plan, and zero it
 */
void load_plan_clear(LoadPlan *p);

#endif
