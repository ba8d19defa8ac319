/*
 * When two snapshots are the same
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "block/block.h"
#include "system/ram-reset-template.h"
#include "migration/misc.h"
#include "options.h"
#include "migration/ram-reset-identity.h"

/* A fuzzer loads few snapshots often: QEMU looks into each of them once */
#define MAX_SUMMARIES 256

char *ram_reset_snapshot_key(BlockDriverState *bs, const QEMUSnapshotInfo *sn)
{
    /* Names come last, and the length of the first one: it may have spaces */
    return g_strdup_printf("%" PRIu64 " %" PRIu32 " %" PRIu32 " %" PRIu64
                           " %" PRIu64 " %s %zu %s %s",
                           sn->vm_state_size, sn->date_sec, sn->date_nsec,
                           sn->vm_clock_nsec, sn->icount,
                           bdrv_get_node_name(bs), strlen(sn->id_str),
                           sn->id_str, sn->name);
}

const RamResetSummary *ram_reset_snapshot_summary(BlockDriverState *bs,
                                                  const QEMUSnapshotInfo *sn,
                                                  Error **errp)
{
    static GHashTable *summaries;       /* by key; BQL */
    g_autofree char *key = ram_reset_snapshot_key(bs, sn);
    bool with_checksum = ram_reset_templates_wanted();
    RamResetSummary *summary;

    if (!summaries) {
        summaries = g_hash_table_new_full(g_str_hash, g_str_equal, g_free,
                                    (GDestroyNotify)ram_reset_summary_free);
    }
    summary = g_hash_table_lookup(summaries, key);
    if (summary && (summary->checksum || !with_checksum)) {
        return summary;
    }
    summary = ram_reset_summary_read(bs, sn, with_checksum, errp);
    if (!summary) {
        return NULL;
    }
    if (g_hash_table_size(summaries) >= MAX_SUMMARIES) {
        g_hash_table_remove_all(summaries);
    }
    g_hash_table_insert(summaries, g_steal_pointer(&key), summary);
    return summary;
}

char *ram_reset_snapshot_identity(BlockDriverState *bs,
                                  const QEMUSnapshotInfo *sn, bool shared)
{
    const RamResetSummary *summary = ram_reset_snapshot_summary(bs, sn, NULL);

    if (!summary || !summary->checksum) {
        return NULL;
    }
    return g_strdup_printf("snapshot %s '%s' of %" PRIu32 ".%09" PRIu32
                           ", clock %" PRIu64 ", icount %" PRIu64
                           ", %" PRIu64 " bytes with SHA-256 %s, machine %s%s",
                           sn->id_str, sn->name, sn->date_sec, sn->date_nsec,
                           sn->vm_clock_nsec, sn->icount, sn->vm_state_size,
                           summary->checksum, summary->machine ?: "unknown",
                           shared ? "" : ", without shared RAM");
}

char *ram_reset_template_identity(BlockDriverState *bs,
                                  const QEMUSnapshotInfo *sn)
{
    if (!ram_reset_templates_wanted() || migrate_mapped_ram()) {
        return NULL;
    }
    return ram_reset_snapshot_identity(bs, sn, !migrate_ignore_shared());
}
