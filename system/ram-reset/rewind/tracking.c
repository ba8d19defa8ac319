/*
 * RAM reset: knowing what has been written to since RAM was a snapshot's
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
#include "system/ram-reset/rewind/dirty-kvm.h"
#include "system/ram-reset/rewind/dirty-log.h"
#include "system/ram-reset/rewind/mappings.h"
#include "system/ram-reset/rewind/tracking.h"
#include "system/ram-reset/rewind/watch.h"

/* RAM, since tracking was started.  Protected by the BQL */
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

bool tracking_start(const GArray *baseline, Error **errp)
{
    ERRP_GUARD();

    if (!ram_reset_flags.tracking) {
        if (!ram_reset_dirty_start(errp)) {
            error_prepend(errp, "the dirty log cannot be started: ");
            return false;
        }
        qatomic_set(&ram_reset_flags.tracking, true);
        ram_added = true;
    }
    /* Somebody may have had it on when RAM was added */
    for (unsigned i = 0; ram_added && i < baseline->len; i++) {
        ram_reset_dirty_watch(g_array_index(baseline, BaselineBlock, i).rb);
    }
    ram_added = false;
    return true;
}

void tracking_begin_anew(const GArray *baseline)
{
    bool before;

    ram_reset_dirty_sync();
    before = ram_reset_dirty_begin_taking();
    for (unsigned i = 0; i < baseline->len; i++) {
        BaselineBlock *base = &g_array_index(baseline, BaselineBlock, i);
        g_autofree unsigned long *bits =
            bitmap_new(base->len / qemu_target_page_size());

        if (base->len) {
            ram_reset_dirty_take(base->rb, bits, NULL);
        }
        if (base->watched) {
            watch_anew(base, NULL);
        }
    }
    ram_reset_dirty_end_taking(before);
}

char *tracking_blind_spot(void)
{
    char *listener = ram_reset_unlogged_listener();

    if (listener) {
        return listener;
    }
    if (ram_reset_vhost_unseen()) {
        return g_strdup(ram_reset_vhost_unseen());
    }
    if (dirty_kvm_lost_ring()) {
        return g_strdup("a vCPU has been unplugged, and KVM's dirty ring of "
                        "that vCPU with what it has written");
    }
    if (!mappings_are_known()) {
        return g_strdup("devices have mapped memory that they do not unmap, "
                        "more of it than can be noted");
    }
    return g_strdup(ram_block_discard_is_disabled()
                    ? "discarding RAM is disabled, a device has pinned it and "
                      "may write to it unseen (VFIO, for one: an emulated or "
                      "a virtio device in its place is seen)" : NULL);
}

void tracking_warn(const char *why)
{
    static bool warned;

    if (!warned) {
        warned = true;
        warn_report("snapshots cannot be rewound to, and are loaded as a "
                    "whole: %s", why);
    }
}
