/*
 * RAM reset: track the writes since RAM was equal to a snapshot
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qapi/error.h"
#include "qemu/bitmap.h"
#include "qemu/error-report.h"
#include "system/ram-reset-flags.h"
#include "system/ram-reset/block/listeners.h"
#include "system/ram-reset/block/vhost.h"
#include "system/ram-reset/rewind/baseline.h"
#include "system/ram-reset/rewind/blockers.h"
#include "system/ram-reset/rewind/dirty-kvm.h"
#include "system/ram-reset/rewind/dirty-log.h"
#include "system/ram-reset/rewind/mappings.h"
#include "system/ram-reset/rewind/tracking.h"
#include "system/ram-reset/rewind/watch.h"

/* RAM has been added since tracking was started.  Protected by the BQL */
static bool ram_added;

void tracking_stop(void)
{
    if (ram_reset_flags.tracking) {
        ram_reset_dirty_stop();
        qatomic_set(&ram_reset_flags.tracking, false);
    }
}

void tracking_ram_added(void)
{
    ram_added = true;
}

RamResetBlocker *tracking_start(const GArray *baseline)
{
    Error *err = NULL;

    if (!ram_reset_flags.tracking) {
        if (!ram_reset_dirty_start(&err)) {
            RamResetBlocker *why =
                ram_reset_blocker_new(RAM_RESET_BLOCKER_DIRTY_LOG_REFUSED,
                                      error_get_pretty(err));

            error_free(err);
            return why;
        }
        qatomic_set(&ram_reset_flags.tracking, true);
        ram_added = true;
    }
    /* Another user may have had the log on when RAM was added */
    for (unsigned i = 0; ram_added && i < baseline->len; i++) {
        ram_reset_dirty_renotify(g_array_index(baseline, BaselineBlock, i).rb);
    }
    ram_added = false;
    return NULL;
}

void tracking_restart(const GArray *baseline)
{
    bool before;

    ram_reset_dirty_sync();
    before = ram_reset_dirty_begin_fetch();
    for (unsigned i = 0; i < baseline->len; i++) {
        BaselineBlock *base = &g_array_index(baseline, BaselineBlock, i);
        g_autofree unsigned long *bits =
            bitmap_new(base->len / qemu_target_page_size());

        if (base->len) {
            ram_reset_dirty_fetch(base->rb, bits, NULL);
        }
        if (base->watched) {
            watch_restart(base, NULL);
        }
    }
    ram_reset_dirty_end_fetch(before);
}

RamResetBlocker *tracking_blocker(void)
{
    g_autofree char *listener = ram_reset_unlogged_listener();
    RamResetBlockerId id = RAM_RESET_BLOCKER__MAX;

    if (listener) {
        id = RAM_RESET_BLOCKER_UNLOGGED_WRITER;
    } else if (ram_reset_vhost_unlogged() != RAM_RESET_BLOCKER__MAX) {
        id = ram_reset_vhost_unlogged();
    } else if (dirty_kvm_lost_ring()) {
        id = RAM_RESET_BLOCKER_VCPU_RING_LOST;
    } else if (!mappings_are_known()) {
        id = RAM_RESET_BLOCKER_MAPPINGS_UNKNOWN;
    } else if (ram_block_discard_is_disabled()) {
        id = RAM_RESET_BLOCKER_MEMORY_PINNED;
    }
    return id == RAM_RESET_BLOCKER__MAX
           ? NULL : ram_reset_blocker_new(id, listener);
}

void tracking_warn(const RamResetBlocker *why)
{
    static bool warned;
    g_autofree char *text = ram_reset_blocker_text(why);

    if (!warned) {
        warned = true;
        warn_report("QEMU cannot rewind, so each snapshot is loaded as a "
                    "whole: %s; %s", text, why->remedy);
    }
}
