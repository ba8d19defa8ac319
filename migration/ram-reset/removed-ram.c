/*
 * RAM of devices and backends that have been removed
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/main-loop.h"
#include "qemu/rcu.h"
#include "exec/cpu-common.h"
#include "system/ram-reset-compat.h"
#include "migration/ram-reset/removed-ram.h"

/*
 * The last reference to a removed memory region may be the memory map's, and
 * the RCU thread drops that later.  It then holds the BQL and takes the RAM list
 * lock, while savevm holds this lock and releases the BQL to wait for a vCPU:
 * both would wait for ever.
 */

static bool removed_ram_is(const RAMBlock *rb)
{
    const Object *obj = OBJECT(rb->mr);

    while (obj->parent) {
        obj = obj->parent;
    }
    return obj != object_get_root();
}

static bool removed_ram_exists(void)
{
    RAMBlock *rb;

    RCU_READ_LOCK_GUARD();
    RAMBLOCK_FOREACH(rb) {
        if (removed_ram_is(rb)) {
            return true;
        }
    }
    return false;
}

void removed_ram_wait(void)
{
    if (removed_ram_exists()) {
        drain_call_rcu();
    }
}
