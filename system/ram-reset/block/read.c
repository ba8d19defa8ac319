/*
 * RAM reset: read all of a RAM block without populating it
 *
 * Finding the data to clear, and checking that it was cleared, must not depend
 * on the same answers of the kernel.  So this reads most of the block.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/units.h"
#include "system/ram-reset-load.h"
#include "system/ram-reset/block/block.h"

#define PIECE_SIZE (1 * MiB)

typedef bool ContentFunc(RAMBlock *rb, uint64_t start, const uint8_t *data,
                         uint64_t len, void *opaque);

static void foreach_private_hugepage(RAMBlock *rb, const PrimMap *map,
                                     ContentFunc *func, void *opaque)
{
    g_autofree PrimDataIter *it = g_new(PrimDataIter, 1);
    uint64_t start, end;

    prim_data_begin(it, map, prim_backing(map), 0, map->len);
    while (prim_data_next(it, &start, &end)) {
        if (!func(rb, start, map->host + start, end - start, opaque)) {
            break;
        }
    }
    prim_data_end(it);
}

void ram_reset_foreach_content(RAMBlock *rb, ContentFunc *func, void *opaque)
{
    PrimMap map = ram_reset_block_map(rb);
    bool by_file = prim_backing(&map) == PRIM_SHARED_FILE;
    g_autofree uint8_t *buf = g_malloc(PIECE_SIZE);
    uint64_t start, len;

    if (!map.shared && map.page_size > qemu_real_host_page_size()) {
        foreach_private_hugepage(rb, &map, func, opaque);
        return;
    }
    for (start = 0; start < map.len; start += len) {
        const uint8_t *data = map.host + start;

        len = MIN(PIECE_SIZE, map.len - start);
        /* A hole reads zero, and stays one */
        if (by_file && prim_read_all(map.fd, buf, len,
                                     map.fd_offset + start) == len) {
            data = buf;
        }
        if (!func(rb, start, data, len, opaque)) {
            return;
        }
    }
}
