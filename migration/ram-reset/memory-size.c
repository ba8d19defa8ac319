/*
 * The memory of snapshots that are in memory only
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qapi/error.h"
#include "system/ram-reset-rewind.h"
#include "migration/ram-reset.h"
#include "migration/ram-reset/memory-size.h"
#include "migration/ram-reset/snapshot.h"

static uint64_t size_with(const char *const *tags, const char *except,
                          uint64_t point)
{
    g_autoptr(GArray) points = g_array_new(false, false, sizeof(uint64_t));
    g_autoptr(GList) all = ram_reset_snapshots();
    uint64_t size = 0;

    g_array_append_val(points, point);
    for (GList *l = all; l; l = l->next) {
        const RamResetSnapshot *s = l->data;

        if (s->vmstate && g_strv_contains(tags, s->info.name) &&
            g_strcmp0(s->info.name, except)) {
            size += g_bytes_get_size(s->vmstate);
            g_array_append_val(points, s->point);
        }
    }
    return size + ram_reset_points_size(points);
}

uint64_t ram_reset_memory_size(const char *const *tags)
{
    return size_with(tags, NULL, 0);
}

bool ram_reset_memory_fits(const char *const *tags, uint64_t limit,
                           const char *except, uint64_t point, uint64_t vmstate,
                           Error **errp)
{
    uint64_t size = vmstate + size_with(tags, except, point);

    if (size > limit) {
        error_setg(errp, "Snapshots in memory would have %" PRIu64 " bytes, "
                   "the limit is %" PRIu64, size, limit);
    }
    return size <= limit;
}
