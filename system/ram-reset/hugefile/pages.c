/*
 * ram-reset-hugefile: find and clear hugepages that hold bytes
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/bitmap.h"
#include "qemu/madvise.h"
#include "qemu/units.h"
#include "system/ram-reset/block/clear.h"
#include "system/ram-reset/hugefile/file.h"
#include "system/ram-reset/hugefile/pages.h"
#include "system/ram-reset/options.h"
#include "system/ram-reset/prim/trusted-file.h"
#include "system/ram-reset/trace.h"

/*
 * If there is no page table, mincore() reports all pages of the file as
 * mapped.  Hence touch one page in each range that a page table covers.
 */
static void make_page_tables(RamResetHugefile *hf)
{
    uintptr_t at = (uintptr_t)hf->rb->host;
    uintptr_t end = at + hf->rb->used_length;

    for (; at < end; at = QEMU_ALIGN_DOWN(at + GiB, GiB)) {
        /* volatile: the read causes a page fault */
        *(volatile uint8_t *)at;
        /* The page table stays; if this fails, one page counts as used */
        qemu_madvise((void *)at, hf->rb->page_size, QEMU_MADV_DONTNEED);
    }
}

/* A page that is not in the file is zero: its bit is cleared */
static void discard_holes(RamResetHugefile *hf)
{
    PrimMap map = ram_reset_block_map(hf->rb);
    g_autofree unsigned long *old = g_steal_pointer(&hf->old);
    g_autofree PrimDataIter *it = g_new(PrimDataIter, 1);
    uint64_t from, to;

    hf->old = bitmap_new(hf->record.pages);
    prim_data_begin(it, &map, prim_backing(&map), 0, map.len);
    while (prim_data_next(it, &from, &to)) {
        bitmap_set(hf->old, from / map.page_size, (to - from) / map.page_size);
    }
    prim_data_end(it);
    bitmap_and(hf->old, hf->old, old, hf->record.pages);
}

void hugefile_find_old(RamResetHugefile *hf, bool all)
{
    if (all) {
        g_free(hf->old);
        hf->old = bitmap_new(hf->record.pages);
        bitmap_set(hf->old, 0, hf->record.pages);
    }
    if (hf->info.reused_pages) {
        make_page_tables(hf);
    }
    if (hf->old) {
        discard_holes(hf);
        hf->info.dirty_pages = bitmap_count_one(hf->old, hf->record.pages);
    }
}

/*
 * Add the pages that may hold bytes of this run, or of earlier ones.  Our page
 * table shows the pages of this run, if nobody else maps the file.
 */
static void add_used_pieces(RamResetHugefile *hf, const RamResetBlock *blk,
                            const PrimMap *map, bool earlier_only,
                            GArray *pieces)
{
    uint64_t size = map->page_size, at, from;

    for (at = 0; at < map->len; at += size) {
        from = at;
        while (at < map->len &&
               ((hf->old && test_bit(at / size, hf->old)) ||
                (!earlier_only && prim_hugepage_mapped(map, at)))) {
            at += size;
        }
        ram_reset_add_pieces(blk, pieces, from, at);
    }
}

static uint64_t clear_old(RamResetHugefile *hf)
{
    PrimMap map = ram_reset_block_map(hf->rb);
    g_autoptr(GArray) pieces = g_array_new(false, false,
                                           sizeof(RamResetPiece));
    RamResetBlock blk = { 0 };

    add_used_pieces(hf, &blk, &map, true, pieces);
    g_clear_pointer(&hf->old, g_free);
    return ram_reset_clear_pieces(map.host, pieces,
                                  ram_reset_threads(RAM_RESET(hf)));
}

void hugefile_clear_old(RamResetHugefile *hf)
{
    int64_t before = g_get_monotonic_time();
    uint64_t cleared = clear_old(hf);

    hf->info.cleared_bytes = cleared;
    hf->info.clear_ns = (g_get_monotonic_time() - before) * 1000;
    trace_ram_reset_hugefile_start(hf->path, cleared);
}

bool hugefile_nobody_else_maps(RamResetHugefile *hf)
{
    struct stat st;

    return hf->watched && !ram_block_discard_is_disabled() &&
           fstat(hf->rb->fd, &st) == 0 && trusted_file_is_ours(&st) &&
           hugefile_file_access_time(&st) == hf->record.access_time;
}

void hugefile_zero_pages(RamResetHugefile *hf, RamResetBlock *blk,
                         uint64_t start, uint64_t len)
{
    unsigned threads = ram_reset_threads(RAM_RESET(hf));
    g_autoptr(GArray) pieces = NULL;

    ++*blk->map.calls;      /* in hugefile_nobody_else_maps() */
    if (!hugefile_nobody_else_maps(hf) || start || len != blk->map.len) {
        /* This also reads pages of the file that are not in our page table */
        g_clear_pointer(&hf->old, g_free);
        ram_reset_clear_in_place(blk, start, len, threads);
        return;
    }
    pieces = g_array_new(false, false, sizeof(RamResetPiece));
    add_used_pieces(hf, blk, &blk->map, false, pieces);
    g_clear_pointer(&hf->old, g_free);
    ram_reset_clear_block(blk, pieces, threads);
}

void hugefile_clean_up(RamResetHugefile *hf)
{
    HugeRecord *rec = &hf->record;
    PrimMap map = ram_reset_block_map(hf->rb);
    g_autoptr(GArray) pieces = g_array_new(false, false,
                                           sizeof(RamResetPiece));
    RamResetBlock blk = { 0 };

    bitmap_clear(rec->dirty, 0, rec->pages);
    add_used_pieces(hf, &blk, &map, false, pieces);
    if (hf->unlink == RAM_RESET_UNLINK_NEVER && hf->clear_on_exit) {
        ram_reset_clear_pieces(map.host, pieces,
                               ram_reset_threads(RAM_RESET(hf)));
        return;
    }
    for (unsigned i = 0; i < pieces->len; i++) {
        RamResetPiece *p = &g_array_index(pieces, RamResetPiece, i);

        bitmap_set(rec->dirty, p->start / map.page_size,
                   DIV_ROUND_UP(p->len, map.page_size));
    }
}
