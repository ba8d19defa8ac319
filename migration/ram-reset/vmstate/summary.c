/*
 * The summary of a saved VM state, which is read without loading it
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qapi/error.h"
#include "qobject/qdict.h"
#include "block/block.h"
#include "block/block_int-global-state.h"
#include "migration/qemu-file.h"
#include "migration/ram-reset/vmstate/device-sections.h"
#include "migration/ram-reset/vmstate/stream.h"
#include "migration/ram-reset/vmstate/summary.h"

void ram_reset_summary_free(RamResetSummary *summary)
{
    g_free(summary->machine);
    g_hash_table_unref(summary->blocks);
    g_clear_pointer(&summary->cpus, g_array_unref);
    g_free(summary->checksum);
    g_free(summary);
}

G_DEFINE_AUTOPTR_CLEANUP_FUNC(RamResetSummary, ram_reset_summary_free)

static bool summary_add_configuration(void *opaque, const char *machine,
                                      bool ignore_shared, bool mapped_ram,
                                      Error **errp)
{
    RamResetSummary *summary = opaque;

    summary->machine = g_strdup(machine);
    summary->ignore_shared = ignore_shared;
    summary->mapped_ram = mapped_ram;
    return true;
}

static bool summary_add_block(void *opaque, const char *name, uint64_t len,
                              Error **errp)
{
    RamResetSummary *summary = opaque;

    g_hash_table_insert(summary->blocks, g_strdup(name),
                        g_memdup2(&len, sizeof(len)));
    return true;
}

/*
 * A second, read-only image over the same file shows the VM state of a snapshot
 * that is not the current one.  Returns NULL if the format cannot do that.
 */
static BlockDriverState *open_snapshot(BlockDriverState *bs,
                                       const QEMUSnapshotInfo *sn)
{
    QDict *options = qdict_new();
    BlockDriverState *file, *image;

    bdrv_graph_rdlock_main_loop();
    file = bs->file ? bs->file->bs : NULL;
    bdrv_graph_rdunlock_main_loop();
    if (!file || !bs->drv || !bs->drv->bdrv_snapshot_load_tmp ||
        bs->encrypted) {
        qobject_unref(options);
        return NULL;
    }

    qdict_put_str(options, "driver", bs->drv->format_name);
    qdict_put_str(options, "file", bdrv_get_node_name(file));
    qdict_put_null(options, "backing");
    qdict_put_str(options, BDRV_OPT_READ_ONLY, "on");
    /* Inactive: @bs may write to the file at the same time */
    image = bdrv_open(NULL, NULL, options, BDRV_O_INACTIVE, NULL);
    if (image && bdrv_snapshot_load_tmp(image, sn->id_str, sn->name,
                                        NULL) < 0) {
        bdrv_unref(image);
        return NULL;
    }
    return image;
}

static const RamStreamVisitor summary_visitor = {
    .configuration = summary_add_configuration,
    .block = summary_add_block,
};

static bool checksum_add(GChecksum *sha, BlockDriverState *image, int64_t at,
                         int64_t len)
{
    g_autofree uint8_t *buf = g_malloc(len);

    if (bdrv_load_vmstate(image, buf, at, len) < 0) {
        return false;
    }
    g_checksum_update(sha, buf, len);
    return true;
}

/*
 * Returns the checksum of samples of a VM state of @size bytes; NULL if it
 * cannot be read.  The image, which may be damaged, has @size.
 */
static char *checksum_samples(BlockDriverState *image, uint64_t size)
{
    g_autoptr(GChecksum) sha = g_checksum_new(G_CHECKSUM_SHA256);
    int64_t len = MIN(size, SUMMARY_BEGINNING), end = MIN(size, VMSTATE_END);

    if (size > INT64_MAX) {
        return NULL;
    }
    if (!checksum_add(sha, image, 0, len) ||
        !checksum_add(sha, image, size - end, end)) {
        return NULL;
    }
    for (uint64_t i = 1, at = size / (SUMMARY_NR_SAMPLES + 1);
         i <= SUMMARY_NR_SAMPLES && size > SUMMARY_BEGINNING + VMSTATE_END;
         i++) {
        if (!checksum_add(sha, image, at * i,
                          MIN(SUMMARY_SAMPLE, size - at * i))) {
            return NULL;
        }
    }
    return g_strdup(g_checksum_get_string(sha));
}

RamResetSummary *ram_reset_summary_of_memory(QEMUFile *f, GBytes *vmstate,
                                             uint64_t ram_end)
{
    RamResetSummary *summary = g_new0(RamResetSummary, 1);
    DeviceSections sections = {};

    summary->blocks = g_hash_table_new_full(g_str_hash, g_str_equal, g_free,
                                            g_free);
    summary->known = ram_stream_walk(f, &summary_visitor, summary, NULL) ==
                     RAM_STREAM_DONE;
    if (device_sections_of_memory(&sections, vmstate, ram_end, NULL)) {
        summary->cpus = g_array_ref(sections.description->cpus);
    }
    device_sections_clear(&sections);
    return summary;
}

RamResetSummary *ram_reset_summary_read(BlockDriverState *bs,
                                        const QEMUSnapshotInfo *sn,
                                        bool with_checksum, Error **errp)
{
    BlockDriverState *image = open_snapshot(bs, sn);
    g_autoptr(RamResetSummary) summary = g_new0(RamResetSummary, 1);
    g_autoptr(VMDescription) description = NULL;
    Error *err = NULL;
    RamStreamResult res;
    QEMUFile *f;

    summary->blocks = g_hash_table_new_full(g_str_hash, g_str_equal, g_free,
                                            g_free);
    if (!image) {
        return g_steal_pointer(&summary);
    }
    f = ram_stream_open(image);
    res = ram_stream_walk(f, &summary_visitor, summary, &err);
    qemu_fclose(f);
    description = vmdesc_read(image, sn->vm_state_size);
    summary->cpus = description ? g_array_ref(description->cpus) : NULL;
    if (with_checksum) {
        summary->checksum = checksum_samples(image, sn->vm_state_size);
    }
    bdrv_unref(image);

    if (res != RAM_STREAM_DONE && res != RAM_STREAM_UNKNOWN) {
        error_propagate(errp, err);
        return NULL;
    }
    error_free(err);
    summary->known = res == RAM_STREAM_DONE;
    return g_steal_pointer(&summary);
}
