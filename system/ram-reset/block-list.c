/*
 * RAM reset: the list of all RAM blocks that a snapshot has
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/main-loop.h"
#include "migration/misc.h"
#include "system/ram-reset-load.h"
#include "system/ram-reset/block-list.h"
#include "system/ram-reset/block/overlay-map.h"
#include "system/ram-reset/options.h"

/* Protected by the BQL */
static struct {
    RamResetBlockList list;
    unsigned users;
} listed;

/* The object that names @rb's backend, else the one that covers every block */
static RamReset *find_owner(RAMBlock *rb, GPtrArray *objs)
{
    const char *memdev = ram_reset_block_memdev(rb);
    RamReset *owner = NULL;

    for (unsigned i = 0; i < objs->len; i++) {
        RamReset *rr = RAM_RESET(objs->pdata[i]);

        if (!rr->memdev) {
            owner = owner ?: rr;
        } else if (!g_strcmp0(rr->memdev, memdev)) {
            return rr;
        }
    }
    return owner;
}

bool ram_reset_covers(RAMBlock *rb)
{
    g_autoptr(GPtrArray) objs = ram_reset_objects();

    return qemu_ram_is_migratable(rb) && !ram_reset_block_refusal(rb) &&
           find_owner(rb, objs);
}

static void block_list_describe(RamResetBlock *blk, RAMBlock *rb,
                                GPtrArray *objs)
{
    memory_region_ref(rb->mr);
    blk->rb = rb;
    blk->info = g_new0(RamResetBlockInfo, 1);
    blk->map = ram_reset_block_map(rb);
    blk->backing = overlay_map_has(rb->host, rb) ? PRIM_PRIVATE_FILE
                                                 : prim_backing(&blk->map);
    blk->map.calls = &blk->info->system_calls;
    blk->info->name = g_strdup(rb->idstr);
    blk->info->size = rb->used_length;
    blk->info->page_size = rb->page_size;
    blk->ignored = migrate_ram_is_ignored(rb);
    blk->info->rom = ram_reset_block_is_rom(rb);
    blk->owner = find_owner(rb, objs);
}

static void make_list(RamResetBlockList *list)
{
    g_autoptr(GPtrArray) objs = ram_reset_objects();
    unsigned nr = 0;
    RAMBlock *rb;

    RCU_READ_LOCK_GUARD();
    RAMBLOCK_FOREACH(rb) {
        nr += qemu_ram_is_migratable(rb);
    }
    list->blocks = g_new0(RamResetBlock, nr);
    RAMBLOCK_FOREACH(rb) {
        if (qemu_ram_is_migratable(rb)) {
            block_list_describe(&list->blocks[list->nr++], rb, objs);
            list->bytes += rb->used_length;
        }
    }
}

RamResetBlockList *ram_reset_list_blocks(void)
{
    assert(bql_locked());
    if (!listed.users++) {
        make_list(&listed.list);
    }
    return &listed.list;
}

void ram_reset_block_list_unref(RamResetBlockList *list)
{
    assert(bql_locked() && listed.users);
    if (--listed.users) {
        return;
    }
    for (unsigned i = 0; i < list->nr; i++) {
        RamResetBlock *blk = &list->blocks[i];

        qapi_free_RamResetBlockInfo(blk->info);
        g_clear_pointer(&blk->parts, g_array_unref);
        g_clear_pointer(&blk->data, g_array_unref);
        g_free(blk->cleared);
        zeromap_free(blk->known);
        memory_region_unref(blk->rb->mr);
    }
    g_free(list->blocks);
    memset(list, 0, sizeof(*list));
}

bool ram_reset_blocks_are_listed(void)
{
    return listed.users;
}
