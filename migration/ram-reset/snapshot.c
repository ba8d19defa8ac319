/*
 * The snapshots that this QEMU knows
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "block/block.h"
#include "system/ram-reset-devices.h"
#include "system/ram-reset-rewind.h"
#include "system/ram-reset-template.h"
#include "migration/misc.h"
#include "migration/options.h"
#include "migration/ram-reset.h"
#include "migration/ram-reset/snapshot.h"

/* A fuzzer loads few snapshots often; QEMU reads the header of each once */
#define MAX_SNAPSHOTS 256

/* BQL */
static struct {
    GHashTable *by_key;         /* key -> RamResetSnapshot, owned */
    RamResetSnapshot *current;
    uint64_t uses;
} snapshots;

static char *make_key(BlockDriverState *bs, const QEMUSnapshotInfo *sn)
{
    /* An id may have spaces: its length makes the key unambiguous */
    return g_strdup_printf("%" PRIu64 " %" PRIu32 " %" PRIu32 " %" PRIu64
                           " %" PRIu64 " %s %zu %s %s",
                           sn->vm_state_size, sn->date_sec, sn->date_nsec,
                           sn->vm_clock_nsec, sn->icount,
                           bdrv_get_node_name(bs), strlen(sn->id_str),
                           sn->id_str, sn->name);
}

/* Copies of devices point to sections */
static void drop_devices(RamResetSnapshot *s)
{
    if (s->has_devices) {
        ram_reset_devices_drop_copy();
        s->has_devices = false;
    }
}

static void drop_cache(RamResetSnapshot *s)
{
    drop_devices(s);
    s->sections_read = false;
    vmstate_cache_drop(&s->cache);
    g_clear_pointer(&s->sections, g_hash_table_unref);
}

static void drop_rewind_state(RamResetSnapshot *s)
{
    drop_cache(s);
    ram_reset_drop_point(s->point);
    s->point = 0;
    s->was_rewound = false;
    g_clear_pointer(&s->map, g_array_unref);
}

static void free_snapshot(void *opaque)
{
    RamResetSnapshot *s = opaque;

    assert(s != snapshots.current);
    drop_rewind_state(s);
    g_clear_pointer(&s->vmstate, g_bytes_unref);
    g_free(s->digest);
    g_clear_pointer(&s->summary, ram_reset_summary_free);
    g_free(s->key);
    g_free(s->node);
    g_free(s);
}

/*
 * Not the current snapshot, nor a pinned one; NULL if there is no other.
 * @with_point: only snapshots with a point, first those that have pages alone
 */
static RamResetSnapshot *find_oldest(bool with_point)
{
    RamResetSnapshot *oldest = NULL;
    bool best = false;
    GHashTableIter iter;
    gpointer value;

    g_hash_table_iter_init(&iter, snapshots.by_key);
    while (g_hash_table_iter_next(&iter, NULL, &value)) {
        RamResetSnapshot *s = value;

        bool own;

        if (s == snapshots.current || ram_reset_snapshot_is_pinned(s) ||
            (with_point && !ram_reset_has_point(s->point))) {
            continue;
        }
        own = with_point && ram_reset_own_pages(s->point);
        if (!oldest || own > best ||
            (own == best && s->last_use < oldest->last_use)) {
            oldest = s;
            best = own;
        }
    }
    return oldest;
}

static gint compare_last_use(gconstpointer a, gconstpointer b, gpointer opaque)
{
    const RamResetSnapshot *x = a, *y = b;

    return x->last_use < y->last_use ? 1 : -1;
}

GList *ram_reset_snapshots(void)
{
    GList *all = snapshots.by_key ? g_hash_table_get_values(snapshots.by_key)
                                  : NULL;

    /* QEMU 10.2 forbids g_list_sort() */
    return g_list_sort_with_data(all, compare_last_use, NULL);
}

bool ram_reset_snapshot_is_gone(BlockDriverState *bs,
                                const QEMUSnapshotInfo *sn)
{
    g_autofree char *key = make_key(bs, sn);
    g_autofree QEMUSnapshotInfo *list = NULL;
    int n = bdrv_snapshot_list(bs, &list);

    for (int i = 0; i < n; i++) {
        g_autofree char *other = strcmp(list[i].name, sn->name)
                                 ? NULL : make_key(bs, &list[i]);

        if (other && !strcmp(key, other)) {
            return false;
        }
    }
    return n >= 0;
}

/* Whether another command than QEMU's own has deleted it from its image */
static bool has_vanished(const RamResetSnapshot *s)
{
    BlockDriverState *bs = ram_reset_snapshot_is_pinned(s)
                           ? bdrv_find_node(s->node) : NULL;

    return bs && ram_reset_snapshot_is_gone(bs, &s->info);
}

void ram_reset_snapshots_trim(void)
{
    GHashTableIter iter;
    gpointer value;

    if (snapshots.by_key) {
        g_hash_table_iter_init(&iter, snapshots.by_key);
        while (g_hash_table_iter_next(&iter, NULL, &value)) {
            RamResetSnapshot *s = value;

            if (s == snapshots.current) {
                continue;
            }
            if (has_vanished(s)) {
                g_hash_table_iter_remove(&iter);
            } else if (!ram_reset_has_point(s->point)) {
                drop_rewind_state(s);
            }
        }
    }
}

bool ram_reset_snapshot_drop_oldest(bool *was_rewound)
{
    RamResetSnapshot *s = find_oldest(true);

    if (s && was_rewound) {
        *was_rewound = s->was_rewound;
    }
    if (s) {
        drop_rewind_state(s);
    }
    return s;
}

RamResetSnapshot *ram_reset_snapshot_find(BlockDriverState *bs,
                                          const QEMUSnapshotInfo *sn)
{
    g_autofree char *key = make_key(bs, sn);

    return snapshots.by_key ? g_hash_table_lookup(snapshots.by_key, key) : NULL;
}

RamResetSnapshot *ram_reset_snapshot_find_in_memory(const char *tag)
{
    g_autoptr(GList) all = ram_reset_snapshots();

    for (GList *l = all; l; l = l->next) {
        RamResetSnapshot *s = l->data;

        if (s->vmstate && !strcmp(s->info.name, tag) && !has_vanished(s)) {
            return s;
        }
    }
    return NULL;
}

RamResetSnapshot *ram_reset_snapshot_find_point(uint64_t point)
{
    g_autoptr(GList) all = ram_reset_snapshots();

    for (GList *l = all; l; l = l->next) {
        if (((RamResetSnapshot *)l->data)->point == point) {
            return l->data;
        }
    }
    return NULL;
}

void ram_reset_snapshot_stored(RamResetSnapshot *s, uint64_t size,
                               int64_t ram_end)
{
    BlockDriverState *bs = bdrv_find_node(s->node);

    g_hash_table_steal(snapshots.by_key, s->key);
    drop_cache(s);
    ram_reset_unpin_point(s->point);
    g_clear_pointer(&s->vmstate, g_bytes_unref);
    g_clear_pointer(&s->digest, g_free);
    g_clear_pointer(&s->summary, ram_reset_summary_free);
    s->info.vm_state_size = size;
    s->ram_end = ram_end;
    g_free(s->key);
    s->key = make_key(bs, &s->info);
    g_hash_table_insert(snapshots.by_key, s->key, s);
}

bool ram_reset_snapshot_has_vmstate(BlockDriverState *bs,
                                    const QEMUSnapshotInfo *sn)
{
    const RamResetSnapshot *s = sn->vm_state_size
                                ? NULL : ram_reset_snapshot_find(bs, sn);

    return sn->vm_state_size || (s && s->vmstate);
}

static unsigned count_pinned(void)
{
    GHashTableIter iter;
    gpointer value;
    unsigned nr = 0;

    g_hash_table_iter_init(&iter, snapshots.by_key);
    while (g_hash_table_iter_next(&iter, NULL, &value)) {
        nr += ram_reset_snapshot_is_pinned(value);
    }
    return nr;
}

RamResetSnapshot *ram_reset_snapshot_get(BlockDriverState *bs,
                                         const QEMUSnapshotInfo *sn)
{
    g_autofree char *key = make_key(bs, sn);
    RamResetSnapshot *s;

    if (!snapshots.by_key) {
        snapshots.by_key = g_hash_table_new_full(g_str_hash, g_str_equal, NULL,
                                                 free_snapshot);
    }
    s = g_hash_table_lookup(snapshots.by_key, key);
    if (!s) {
        /* Several may have been unpinned */
        while (g_hash_table_size(snapshots.by_key) - count_pinned() >=
               MAX_SNAPSHOTS) {
            g_hash_table_remove(snapshots.by_key, find_oldest(false)->key);
        }
        s = g_new0(RamResetSnapshot, 1);
        s->key = g_steal_pointer(&key);
        s->node = g_strdup(bdrv_get_node_name(bs));
        s->info = *sn;
        g_hash_table_insert(snapshots.by_key, s->key, s);
    }
    s->last_use = ++snapshots.uses;
    return s;
}

void ram_reset_snapshot_set_current(RamResetSnapshot *s)
{
    RamResetSnapshot *last = snapshots.current;

    if (last && last != s) {
        drop_devices(last);
        if (!ram_reset_has_point(last->point)) {
            drop_rewind_state(last);
        }
    }
    snapshots.current = s;
}

void ram_reset_snapshot_forget(BlockDriverState *bs,
                               const QEMUSnapshotInfo *sn)
{
    RamResetSnapshot *s = ram_reset_snapshot_find(bs, sn);

    if (s) {
        if (s == snapshots.current) {
            ram_reset_snapshot_set_current(NULL);
        }
        g_hash_table_remove(snapshots.by_key, s->key);
    }
}

RamResetSnapshot *ram_reset_snapshot_current(void)
{
    return snapshots.current;
}

const RamResetSummary *ram_reset_snapshot_summary(RamResetSnapshot *s,
                                                  BlockDriverState *bs,
                                                  Error **errp)
{
    bool with_checksum = ram_reset_templates_wanted();
    RamResetSummary *summary;

    if (s->summary &&
        (s->summary->checksum || !with_checksum || s->vmstate)) {
        return s->summary;
    }
    summary = ram_reset_summary_read(bs, &s->info, with_checksum, errp);
    if (summary) {
        g_clear_pointer(&s->summary, ram_reset_summary_free);
        s->summary = summary;
    }
    return summary;
}

char *ram_reset_snapshot_identity(RamResetSnapshot *s, BlockDriverState *bs,
                                  bool shared)
{
    const RamResetSummary *summary = ram_reset_snapshot_summary(s, bs, NULL);
    const QEMUSnapshotInfo *sn = &s->info;

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

char *ram_reset_template_identity(RamResetSnapshot *s, BlockDriverState *bs)
{
    if (!ram_reset_templates_wanted() || migrate_mapped_ram() || s->vmstate) {
        return NULL;
    }
    return ram_reset_snapshot_identity(s, bs, !migrate_ignore_shared());
}
