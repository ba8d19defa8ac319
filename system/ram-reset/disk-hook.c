/*
 * RAM reset: callback of block/snapshot.c, which is in qemu-img as well
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "block/qcow2.h"
#include "system/ram-reset-disks.h"

bool (*ram_reset_excludes_disk_cb)(BlockDriverState *bs);
void (*ram_reset_before_deletion_cb)(BlockDriverState *bs, const char *id,
                                     const char *name);
bool ram_reset_disk_changed, ram_reset_disk_reverting;

bool ram_reset_disk_is_at(const uint64_t *active, uint64_t *snapshot,
                          unsigned len)
{
    unsigned same = 0;

    /* The snapshot's own marks are as old as the save, and mean nothing */
    while (same < len && active[same] ==
           (be64_to_cpu(snapshot[same]) & ~QCOW_OFLAG_COPIED)) {
        same++;
    }
    if (len && same == len) {
        return true;
    }
    ram_reset_disk_changed = true;
    for (unsigned i = 0; i < len; i++) {
        snapshot[i] &= cpu_to_be64(~QCOW_OFLAG_COPIED);
    }
    return false;
}

static GByteArray *list_parts;
static int64_t list_start;

int ram_reset_list_add(int64_t offset, int64_t len, const void *part)
{
    assert(qemu_in_main_thread());
    if (!list_parts) {
        list_parts = g_byte_array_new();
        list_start = offset;
    }
    for (uint8_t zero = 0; list_start + list_parts->len < offset;) {
        g_byte_array_append(list_parts, &zero, 1);
    }
    g_byte_array_append(list_parts, part, len);
    return 0;
}

int coroutine_mixed_fn ram_reset_list_write(BdrvChild *file)
{
    g_autoptr(GByteArray) parts = g_steal_pointer(&list_parts);

    return parts ? bdrv_pwrite(file, list_start, parts->len, parts->data, 0)
                 : 0;
}
