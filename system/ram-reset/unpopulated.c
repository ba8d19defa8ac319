/*
 * RAM reset: find the pages of RAM that have never been populated
 *
 * A save need not read a page that the host has no memory for.  Reading it
 * would allocate it if memory is shared.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/main-loop.h"
#include "system/ram-reset/block-list.h"
#include "system/ram-reset/block/block.h"
#include "system/ram-reset/block/find-data.h"
#include "system/ram-reset/options.h"
#include "system/ram-reset-load.h"

typedef struct ScannedBlock {
    uint8_t *host;
    uint64_t len;
    ZeroMap *zero;
} ScannedBlock;

/* Protected by the BQL */
static struct {
    GArray *blocks;             /* of ScannedBlock; NULL if there is no scan */
    unsigned last;              /* where the last search ended */
} scan;

void ram_reset_unpopulated_end(void)
{
    for (unsigned i = 0; scan.blocks && i < scan.blocks->len; i++) {
        zeromap_free(g_array_index(scan.blocks, ScannedBlock, i).zero);
    }
    g_clear_pointer(&scan.blocks, g_array_unref);
}

void ram_reset_unpopulated_begin(void)
{
    g_autoptr(RamResetBlockList) list = NULL;

    assert(bql_locked());
    ram_reset_unpopulated_end();
    if (!ram_reset_enabled()) {
        return;
    }
    scan.blocks = g_array_new(false, false, sizeof(ScannedBlock));
    scan.last = 0;
    list = ram_reset_list_blocks();
    for (unsigned i = 0; i < list->nr; i++) {
        RamResetBlock *blk = &list->blocks[i];
        ScannedBlock found = { .host = blk->map.host, .len = blk->map.len };

        if (found.len && blk->owner && !ram_reset_block_refusal(blk->rb)) {
            found.zero = ram_reset_find_unpopulated(blk);
            g_array_append_val(scan.blocks, found);
        }
    }
}

bool ram_reset_is_unpopulated(const void *page)
{
    const uint8_t *host = page;

    /* Pages are requested in order, block by block */
    for (unsigned i = 0; scan.blocks && i < scan.blocks->len; i++) {
        unsigned at = (scan.last + i) % scan.blocks->len;
        ScannedBlock *s = &g_array_index(scan.blocks, ScannedBlock, at);

        if (host >= s->host && host < s->host + s->len) {
            scan.last = at;
            return zeromap_known(s->zero, host - s->host,
                                 qemu_target_page_size());
        }
    }
    return false;
}
