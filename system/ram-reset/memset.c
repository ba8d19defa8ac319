/*
 * ram-reset-memset: clear in place
 *
 * The reference that every other strategy must equal, and what they fall
 * back to.  Memory stays where it is.  Pages that the host has not populated
 * are not touched, and pages that read zero are not written, so clearing
 * never makes the guest's memory grow.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/cutils.h"
#include "qemu/units.h"
#include "internal.h"
#include "mappedruns.h"

/* Large enough to hide the cost of starting a thread, or of taking a piece */
#define BYTES_A_THREAD  (64 * MiB)
#define PIECES_AT_ONCE  8

/* The unit in which memory is tested for being zero */
#define TEST_SIZE       4096

typedef struct ClearJob {
    uint8_t *host;
    GArray *pieces;
    unsigned next;              /* atomic: the first piece nobody has taken */
} ClearJob;

/* Clear what is not zero in populated memory; returns bytes cleared */
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

    /* A host page may be part of a target page; clearing twice does no harm */
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

static RamResetPiece total(GArray *pieces)
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
    unsigned nr = MIN(threads, DIV_ROUND_UP(total(pieces).len,
                                            BYTES_A_THREAD));

    ram_reset_in_threads(nr, clear_worker, &job);
    return total(pieces).cleared;
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

/*
 * In one go: looking for the end of data that runs on to the end of a file
 * takes as long as that file is large, for each piece anew.
 */
static GArray *ask_kernel(const RamResetBlock *blk, PrimBacking backing,
                          uint64_t start, uint64_t end, bool *told)
{
    g_autofree PrimDataIter *it = g_new(PrimDataIter, 1);
    GArray *data = g_array_new(false, false, sizeof(PrimRange));

    *told = prim_data_begin(it, &blk->map, backing, start, end);
    while (prim_data_next(it, &start, &end)) {
        PrimRange range = { start, end - start };

        g_array_append_val(data, range);
    }
    prim_data_end(it);
    return data;
}

/* Ranges in rising order, maybe overlapping, made disjoint */
static GArray *merge_ranges(GArray *ranges)
{
    GArray *merged = g_array_new(false, false, sizeof(PrimRange));

    for (unsigned i = 0; i < ranges->len; i++) {
        PrimRange range = g_array_index(ranges, PrimRange, i), *last;

        last = merged->len
               ? &g_array_index(merged, PrimRange, merged->len - 1) : NULL;
        if (last && range.start <= last->start + last->len) {
            last->len = MAX(last->len, range.start + range.len - last->start);
        } else {
            g_array_append_val(merged, range);
        }
    }
    g_array_unref(ranges);
    return merged;
}

static int by_start(const void *a, const void *b)
{
    uint64_t x = ((const PrimRange *)a)->start;
    uint64_t y = ((const PrimRange *)b)->start;

    return x < y ? -1 : x > y;
}

/* What our page table has, and what it may have not because nobody looked */
static GArray *find_in_mapped(const RamResetBlock *blk, const GArray *runs,
                              uint64_t start, uint64_t end, bool *told)
{
    GArray *data = ask_kernel(blk, PRIM_PRIVATE_ZERO, start, end, told);

    for (unsigned i = 0; i < runs->len; i++) {
        PrimRange run = g_array_index(runs, PrimRange, i);
        uint64_t from = MAX(run.start, start);
        uint64_t to = MIN(run.start + run.len, end);
        PrimRange range = { from, to - from };

        if (from < to) {
            g_array_append_val(data, range);
        }
    }
    g_array_sort(data, by_start);
    return merge_ranges(data);
}

GArray *ram_reset_find_data(const RamResetBlock *blk, PrimBacking backing,
                            uint64_t start, uint64_t end, bool *told)
{
    g_autoptr(GArray) runs = mapped_runs_copy(blk->rb->host, blk->rb);

    return runs ? find_in_mapped(blk, runs, start, end, told)
                : ask_kernel(blk, backing, start, end, told);
}

static GArray *populated_pieces(const RamResetBlock *blk,
                                uint64_t start, uint64_t end)
{
    bool told;
    g_autoptr(GArray) data = blk->data ? g_array_ref(blk->data) :
        ram_reset_find_data(blk, blk->backing, start, end, &told);
    GArray *pieces = g_array_new(false, false, sizeof(RamResetPiece));

    for (unsigned i = 0; i < data->len; i++) {
        PrimRange range = g_array_index(data, PrimRange, i);
        uint64_t from = MAX(range.start, start);
        uint64_t to = MIN(range.start + range.len, end);

        if (from < to) {
            ram_reset_add_pieces(blk, pieces, from, to);
        }
    }
    return pieces;
}

static bool memset_supports(RamReset *rr, const RamResetBlock *blk,
                            Error **errp)
{
    return true;
}

static int memset_zero(RamReset *rr, RamResetBlock *blk,
                       uint64_t start, uint64_t len)
{
    g_autoptr(GArray) pieces = populated_pieces(blk, start, start + len);

    ram_reset_clear_block(blk, pieces, ram_reset_threads(rr));
    return 0;
}

static void memset_class_init(ObjectClass *oc, RamResetClassData *data)
{
    RamResetClass *rrc = RAM_RESET_CLASS(oc);

    rrc->late = true;
    rrc->supports = memset_supports;
    rrc->zero = memset_zero;
}

static const TypeInfo memset_types[] = {
    {
        .name = TYPE_RAM_RESET_MEMSET,
        .parent = TYPE_RAM_RESET,
        .class_init = memset_class_init,
    },
};

DEFINE_TYPES(memset_types)
