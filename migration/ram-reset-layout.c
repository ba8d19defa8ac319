/*
 * Whether a snapshot fits the running machine
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qapi/error.h"
#include "qemu/units.h"
#include "qobject/qdict.h"
#include "block/block.h"
#include "block/block_int-global-state.h"
#include "hw/boards.h"
#include "migration/misc.h"
#include "system/ram-reset-compat.h"
#include "system/ram-reset-load.h"
#include "system/ram-reset-template.h"
#include "options.h"
#include "qemu-file.h"
#include "ram-reset-check.h"
#include "ram-reset-stream.h"

/* What a snapshot says of the machine it is of, if that can be known */
typedef struct Layout {
    bool known;
    char *machine;              /* NULL if it does not say */
    bool ignore_shared;
    GHashTable *blocks;         /* name -> uint64_t length in bytes */
    char *checksum;             /* of samples of its VM state, or NULL */
} Layout;

/* What is looked at of a VM state, in bytes: devices are at its end */
#define BEGINNING   (4 * KiB)
#define END         (64 * KiB)
#define SAMPLE      (1 * KiB)
#define NR_SAMPLES  16

static void layout_free(gpointer opaque)
{
    Layout *layout = opaque;

    g_free(layout->machine);
    g_hash_table_unref(layout->blocks);
    g_free(layout->checksum);
    g_free(layout);
}

G_DEFINE_AUTOPTR_CLEANUP_FUNC(Layout, layout_free)

static bool layout_configuration(void *opaque, const char *machine,
                                 bool ignore_shared, Error **errp)
{
    Layout *layout = opaque;

    layout->machine = g_strdup(machine);
    layout->ignore_shared = ignore_shared;
    return true;
}

static bool layout_block(void *opaque, const char *name, uint64_t len,
                         Error **errp)
{
    Layout *layout = opaque;

    g_hash_table_insert(layout->blocks, g_strdup(name),
                        g_memdup2(&len, sizeof(len)));
    return true;
}

static bool compare_configuration(const Layout *layout, Error **errp)
{
    ERRP_GUARD();
    const char *ours = MACHINE_GET_CLASS(current_machine)->name;

    if (!layout->machine) {
        return true;
    }
    if (strcmp(layout->machine, ours)) {
        error_setg(errp, "it is of machine type '%s', this machine is '%s'",
                   layout->machine, ours);
        error_append_hint(errp, "Start QEMU with -machine %s.\n",
                          layout->machine);
        return false;
    }
    if (layout->ignore_shared != migrate_ignore_shared()) {
        error_setg(errp, "it was saved with migration capability "
                   "'x-ignore-shared' %s, which is %s now",
                   layout->ignore_shared ? "on" : "off",
                   migrate_ignore_shared() ? "on" : "off");
        error_append_hint(errp, "Set the capability as it was.\n");
        return false;
    }
    return true;
}

static const char ram_hint[] = "Start QEMU with the memory and device "
                               "options that the snapshot was taken with.\n";

static bool compare_block(RAMBlock *rb, const char *name, uint64_t len,
                          Error **errp)
{
    ERRP_GUARD();

    if (!rb || !qemu_ram_is_migratable(rb)) {
        error_setg(errp, "it has RAM block '%s' of %" PRIu64 " bytes, which "
                   "this machine has not", name, len);
        error_append_hint(errp, ram_hint);
        return false;
    }
    if (rb->flags & RAM_RESIZEABLE ? len > rb->max_length
                                   : len != rb->used_length) {
        error_setg(errp, "RAM block '%s' has %" PRIu64 " bytes in it, and %"
                   PRIu64 " in this machine", name, len,
                   (uint64_t)rb->used_length);
        error_append_hint(errp, ram_hint);
        return false;
    }
    return true;
}

static bool compare_layout(const Layout *layout, Error **errp)
{
    ERRP_GUARD();
    GHashTableIter iter;
    gpointer name, len;
    RAMBlock *rb;

    if (!layout->known) {
        return true;
    }
    if (!compare_configuration(layout, errp)) {
        return false;
    }
    RCU_READ_LOCK_GUARD();
    g_hash_table_iter_init(&iter, layout->blocks);
    while (g_hash_table_iter_next(&iter, &name, &len)) {
        if (!compare_block(qemu_ram_block_by_name(name), name,
                           *(uint64_t *)len, errp)) {
            return false;
        }
    }
    /* RAM that the load would leave as the old guest had it */
    RAMBLOCK_FOREACH(rb) {
        if (ram_reset_covers(rb) &&
            !g_hash_table_contains(layout->blocks, rb->idstr)) {
            error_setg(errp, "this machine has RAM block '%s' of %" PRIu64
                       " bytes, which is not in it", rb->idstr,
                       (uint64_t)rb->used_length);
            error_append_hint(errp, ram_hint);
            return false;
        }
    }
    return true;
}

/*
 * A second, read-only image over the same file shows the VM state of a
 * snapshot that is not the current one.  NULL if that is not possible.
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
    /* Inactive: the image is somebody else's to write */
    image = bdrv_open(NULL, NULL, options, BDRV_O_INACTIVE, NULL);
    if (image && bdrv_snapshot_load_tmp(image, sn->id_str, sn->name,
                                        NULL) < 0) {
        bdrv_unref(image);
        return NULL;
    }
    return image;
}

/* Everything that tells one snapshot from another */
static char *layout_key(BlockDriverState *bs, const QEMUSnapshotInfo *sn)
{
    return g_strdup_printf("%s %s %s %" PRIu64 " %" PRIu32 " %" PRIu32
                           " %" PRIu64, bdrv_get_node_name(bs), sn->id_str,
                           sn->name, sn->vm_state_size, sn->date_sec,
                           sn->date_nsec, sn->vm_clock_nsec);
}

static bool add_sample(GChecksum *sha, BlockDriverState *image, int64_t at,
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
 * Of the VM state of @image, which has @size bytes by what the image says;
 * NULL if it cannot be read
 */
static char *sample(BlockDriverState *image, uint64_t size)
{
    g_autoptr(GChecksum) sha = g_checksum_new(G_CHECKSUM_SHA256);
    int64_t len = MIN(size, BEGINNING), end = MIN(size, END);

    if (size > INT64_MAX) {
        return NULL;
    }
    if (!add_sample(sha, image, 0, len) ||
        !add_sample(sha, image, size - end, end)) {
        return NULL;
    }
    for (uint64_t i = 1; i <= NR_SAMPLES && size > BEGINNING + END; i++) {
        if (!add_sample(sha, image, size / (NR_SAMPLES + 1) * i,
                        MIN(SAMPLE, size - size / (NR_SAMPLES + 1) * i))) {
            return NULL;
        }
    }
    return g_strdup(g_checksum_get_string(sha));
}

/* NULL with @errp set if it is no VM state */
static Layout *read_layout(BlockDriverState *bs, const QEMUSnapshotInfo *sn,
                           Error **errp)
{
    static const RamStreamVisitor visitor = {
        .configuration = layout_configuration,
        .block = layout_block,
    };
    BlockDriverState *image = open_snapshot(bs, sn);
    g_autoptr(Layout) layout = g_new0(Layout, 1);
    Error *err = NULL;
    RamStreamResult res;
    QEMUFile *f;

    layout->blocks = g_hash_table_new_full(g_str_hash, g_str_equal, g_free,
                                           g_free);
    if (!image) {
        return g_steal_pointer(&layout);
    }
    f = ram_stream_open(image);
    res = ram_stream_walk(f, &visitor, layout, &err);
    qemu_fclose(f);
    if (ram_reset_templates_wanted()) {
        layout->checksum = sample(image, sn->vm_state_size);
    }
    bdrv_unref(image);

    if (res != RAM_STREAM_DONE && res != RAM_STREAM_UNKNOWN) {
        error_propagate(errp, err);
        return NULL;
    }
    error_free(err);
    layout->known = res == RAM_STREAM_DONE;
    return g_steal_pointer(&layout);
}

/* A fuzzer loads few snapshots often: they are looked into once */
#define MAX_LAYOUTS 256

static Layout *find_layout(BlockDriverState *bs, const QEMUSnapshotInfo *sn,
                           Error **errp)
{
    static GHashTable *layouts;
    g_autofree char *key = layout_key(bs, sn);
    Layout *layout;

    if (!layouts) {
        layouts = g_hash_table_new_full(g_str_hash, g_str_equal, g_free,
                                        layout_free);
    }
    layout = g_hash_table_lookup(layouts, key);
    if (layout && !layout->checksum && ram_reset_templates_wanted()) {
        layout = NULL;
    }
    if (!layout) {
        layout = read_layout(bs, sn, errp);
        if (!layout) {
            return NULL;
        }
        if (g_hash_table_size(layouts) >= MAX_LAYOUTS) {
            g_hash_table_remove_all(layouts);
        }
        g_hash_table_insert(layouts, g_steal_pointer(&key), layout);
    }
    return layout;
}

bool ram_reset_check_layout(BlockDriverState *bs, const QEMUSnapshotInfo *sn,
                            Error **errp)
{
    ERRP_GUARD();
    Layout *layout = find_layout(bs, sn, errp);

    if (!layout || !compare_layout(layout, errp)) {
        error_prepend(errp, "Snapshot '%s' does not fit, nothing has been "
                      "changed: ", sn->name);
        return false;
    }
    return true;
}

char *ram_reset_snapshot_identity(BlockDriverState *bs,
                                  const QEMUSnapshotInfo *sn)
{
    Layout *layout = find_layout(bs, sn, NULL);

    if (!layout || !layout->checksum) {
        return NULL;
    }
    return g_strdup_printf("snapshot %s '%s' of %" PRIu32 ".%09" PRIu32
                           ", clock %" PRIu64 ", icount %" PRIu64
                           ", %" PRIu64 " bytes with SHA-256 %s, machine %s",
                           sn->id_str, sn->name, sn->date_sec, sn->date_nsec,
                           sn->vm_clock_nsec, sn->icount, sn->vm_state_size,
                           layout->checksum, layout->machine ?: "unknown");
}
