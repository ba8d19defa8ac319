/*
 * RAM reset: clear memory in place
 *
 * This neither touches pages that the host has not populated, nor writes pages
 * that read as zero.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/cutils.h"
#include "qemu/units.h"
#include "system/ram-reset/block/clear.h"
#include "system/ram-reset/block/find-data.h"
#include "system/ram-reset/block/threads.h"

/* Large enough to hide the cost of starting a thread, or of taking a piece */
#define BYTES_A_THREAD  (64 * MiB)
#define PIECES_AT_ONCE  8

/* The unit in which memory is tested for being zero */
#define TEST_SIZE       4096

typedef struct ClearJob {
    uint8_t *host;
    GArray *pieces;
    unsigned next;              /* atomic: first piece not started */
} ClearJob;

/*
 * Clear the bytes in populated memory that are not zero; returns bytes cleared
 */
static uint64_t clear_populated(uint8_t *host, uint64_t len)
{
    uint64_t cleared = 0;
    uint64_t at, n;

    for (at = 0; at < len; at += n) {
        n = MIN(TEST_SIZE, len - at);
        if (!buffer_is_zero(host + at, n)) {
            prim_clear(host + at, n);
            cleared += n;
        }
    }
    return cleared;
}

static void *clear_worker(void *opaque)
{
    ClearJob *job = opaque;
    unsigned i;

    while ((i = qatomic_fetch_add(&job->next, PIECES_AT_ONCE)) <
           job->pieces->len) {
        unsigned end = MIN(i + PIECES_AT_ONCE, job->pieces->len);

        for (; i < end; i++) {
            RamResetPiece *piece = &g_array_index(job->pieces, RamResetPiece,
                                                  i);

            piece->cleared = clear_populated(job->host + piece->start,
                                             piece->len);
        }
    }
    prim_clear_fence();
    return NULL;
}

void ram_reset_add_pieces(const RamResetBlock *blk, GArray *pieces,
                          uint64_t start, uint64_t end)
{
    uint64_t page = blk->known ? qemu_target_page_size() : 1;
    uint64_t len;

    /* A host page may be part of a target page; clearing twice is harmless */
    start = QEMU_ALIGN_DOWN(start, page);
    end = blk->known ? MIN(QEMU_ALIGN_UP(end, page), blk->map.len) : end;
    for (; start < end; start += len) {
        RamResetPiece piece = {
            start, MIN(RAM_RESET_CHUNK - start % RAM_RESET_CHUNK, end - start),
        };

        if (blk->known) {
            len = zeromap_gap(blk->known, start, end - start);
            if (len) {
                continue;
            }
            piece.len = zeromap_run(blk->known, start, piece.len);
        }
        len = piece.len;
        g_array_append_val(pieces, piece);
    }
}

static RamResetPiece clear_total(GArray *pieces)
{
    RamResetPiece sum = { 0 };

    for (unsigned i = 0; i < pieces->len; i++) {
        sum.len += g_array_index(pieces, RamResetPiece, i).len;
        sum.cleared += g_array_index(pieces, RamResetPiece, i).cleared;
    }
    return sum;
}

uint64_t ram_reset_clear_pieces(uint8_t *host, GArray *pieces,
                                unsigned threads)
{
    ClearJob job = { .host = host, .pieces = pieces };
    unsigned nr = MIN(threads, DIV_ROUND_UP(clear_total(pieces).len,
                                            BYTES_A_THREAD));

    ram_reset_in_threads(nr, clear_worker, &job);
    return clear_total(pieces).cleared;
}

void ram_reset_clear_block(RamResetBlock *blk, GArray *pieces,
                           unsigned threads)
{
    unsigned bits = qemu_target_page_bits();
    uint64_t cleared = ram_reset_clear_pieces(blk->map.host, pieces, threads);

    blk->info->zeroed_bytes += cleared;
    blk->info->cleared_pages += cleared >> bits;
    for (unsigned i = 0; blk->cleared && i < pieces->len; i++) {
        RamResetPiece *piece = &g_array_index(pieces, RamResetPiece, i);

        blk->cleared[piece->start / RAM_RESET_CHUNK] += piece->cleared >> bits;
    }
}

void ram_reset_clear_in_place(RamResetBlock *blk, uint64_t start, uint64_t len,
                              unsigned threads)
{
    g_autoptr(GArray) data = ram_reset_find_populated(blk, start, start + len);
    g_autoptr(GArray) pieces = g_array_new(false, false,
                                           sizeof(RamResetPiece));

    for (unsigned i = 0; i < data->len; i++) {
        PrimRange range = g_array_index(data, PrimRange, i);

        ram_reset_add_pieces(blk, pieces, range.start, range.start + range.len);
    }
    ram_reset_clear_block(blk, pieces, threads);
}
