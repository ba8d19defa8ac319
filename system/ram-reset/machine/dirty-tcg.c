/*
 * RAM reset: the dirty log of TCG while the guest is migrated
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/rcu.h"
#include "exec/cpu-common.h"
#include "system/ram-reset.h"
#include "system/ram-reset-compat-dirty.h"
#include "system/ram-reset-dirty-tcg.h"
#include "system/tcg.h"

/* Pages are written after this: what was written before it is in them */
static void bits_fetched(MemoryListener *listener)
{
    RAMBlock *rb;

    RCU_READ_LOCK_GUARD();
    RAMBLOCK_FOREACH(rb) {
        if (rb->used_length) {
            physical_memory_dirty_bits_cleared(rb->offset, rb->used_length);
        }
    }
}

void ram_reset_watch_dirty_tcg(bool watch)
{
    static MemoryListener listener = {
        .name = "ram-reset-dirty-tcg",
        .log_global_after_sync = bits_fetched,
    };

    if (!tcg_enabled()) {
        return;
    }
    if (watch) {
        memory_listener_register(&listener, &address_space_memory);
    } else {
        memory_listener_unregister(&listener);
    }
}
