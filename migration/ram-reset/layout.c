/*
 * Whether a snapshot fits the running machine
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qapi/error.h"
#include "hw/core/cpu.h"
#include "migration/misc.h"
#include "system/ram-reset-compat.h"
#include "system/ram-reset-load.h"
#include "migration/options.h"
#include "migration/ram-reset/layout.h"

static bool compare_capability(const char *name, bool saved, bool ours,
                               Error **errp)
{
    ERRP_GUARD();

    if (saved != ours) {
        error_setg(errp, "it was saved with migration capability '%s' %s, "
                   "the capability is %s now", name, saved ? "on" : "off",
                   ours ? "on" : "off");
        error_append_hint(errp, "Set the capability as it was.\n");
        return false;
    }
    return true;
}

static bool compare_configuration(const RamResetSummary *summary, Error **errp)
{
    ERRP_GUARD();
    const char *ours = MACHINE_GET_CLASS(current_machine)->name;

    if (!summary->machine) {
        return true;
    }
    if (strcmp(summary->machine, ours)) {
        error_setg(errp, "it is of machine type '%s', this machine is '%s'",
                   summary->machine, ours);
        error_append_hint(errp, "Start QEMU with -machine %s.\n",
                          summary->machine);
        return false;
    }
    return compare_capability("x-ignore-shared", summary->ignore_shared,
                              migrate_ignore_shared(), errp) &&
           compare_capability("mapped-ram", summary->mapped_ram,
                              migrate_mapped_ram(), errp);
}

static const char ram_hint[] = "Start QEMU with the memory and device "
                               "options that the snapshot was taken with.\n";

/* @may_resize: the load sets used_length to the saved length */
static bool compare_block(RAMBlock *rb, const char *name, uint64_t len,
                          bool may_resize, Error **errp)
{
    ERRP_GUARD();

    if (!rb || !qemu_ram_is_migratable(rb)) {
        error_setg(errp, "it has RAM block '%s' of %" PRIu64 " bytes, this "
                   "machine does not have it", name, len);
        error_append_hint(errp, ram_hint);
        return false;
    }
    if (may_resize && (rb->flags & RAM_RESIZEABLE)
        ? len > rb->max_length : len != rb->used_length) {
        error_setg(errp, "RAM block '%s' has %" PRIu64 " bytes in the "
                   "snapshot, and %" PRIu64 " in this machine", name, len,
                   (uint64_t)rb->used_length);
        error_append_hint(errp, ram_hint);
        return false;
    }
    return true;
}

/*
 * This machine may have more CPUs.  After a load they are in the state of a
 * reset, and wait for a start that the guest will not request.
 */
static bool compare_cpus(const GArray *cpus, Error **errp)
{
    ERRP_GUARD();

    for (unsigned i = 0; cpus && i < cpus->len; i++) {
        uint32_t index = g_array_index(cpus, uint32_t, i);

        if (index > INT_MAX || !qemu_get_cpu(index)) {
            error_setg(errp, "it has CPU %" PRIu32 ", this machine does not "
                       "have it", index);
            error_append_hint(errp, "Plug it, or start QEMU with the CPUs that "
                              "the snapshot was taken with.\n");
            return false;
        }
    }
    return true;
}

static bool compare_summary(const RamResetSummary *summary, Error **errp)
{
    ERRP_GUARD();
    GHashTableIter iter;
    gpointer name, len;
    RAMBlock *rb;

    if (summary->known && !compare_configuration(summary, errp)) {
        return false;
    }
    if (!compare_cpus(summary->cpus, errp)) {
        return false;
    }
    if (!summary->known) {
        return true;
    }
    RCU_READ_LOCK_GUARD();
    g_hash_table_iter_init(&iter, summary->blocks);
    while (g_hash_table_iter_next(&iter, &name, &len)) {
        if (!compare_block(qemu_ram_block_by_name(name), name,
                           *(uint64_t *)len, !summary->mapped_ram, errp)) {
            return false;
        }
    }
    /* The load would leave the old guest's data in such a block */
    RAMBLOCK_FOREACH(rb) {
        if (ram_reset_covers(rb) &&
            !g_hash_table_contains(summary->blocks, rb->idstr)) {
            error_setg(errp, "this machine has RAM block '%s' of %" PRIu64
                       " bytes, the snapshot does not have it", rb->idstr,
                       (uint64_t)rb->used_length);
            error_append_hint(errp, ram_hint);
            return false;
        }
    }
    return true;
}

bool ram_reset_check_layout(RamResetSnapshot *s, BlockDriverState *bs,
                            Error **errp)
{
    ERRP_GUARD();
    const RamResetSummary *summary = ram_reset_snapshot_summary(s, bs, errp);

    if (!summary || !compare_summary(summary, errp)) {
        error_prepend(errp, "Snapshot '%s' does not fit, nothing has been "
                      "changed: ", s->info.name);
        return false;
    }
    return true;
}
