/*
 * ram-reset-auto: the history of a block in past loads
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "system/ram-reset/auto/history.h"
#include "system/ram-reset/prim/ranges.h"

/* The policy's pages */
#define PAGE_SIZE 4096

/* The history of a chunk, in pages */
typedef struct Past {
    uint32_t left;              /* present after the last load */
    uint32_t again;             /* touched before it, if that was seen */
    uint32_t back;              /* present again after the last discard */
    bool discarded;             /* the last load discarded it */
} Past;

struct History {
    uint64_t len, chunk;
    size_t nr;
    bool learnt;                /* a load has been seen */
    PolicyChunk *chunks;
    Past *past;
};

static uint64_t chunk_size(const RamResetBlock *blk)
{
    return MAX(RAM_RESET_CHUNK, blk->map.page_size);
}

History *history_new(const RamResetBlock *blk)
{
    History *h = g_new0(History, 1);

    h->len = blk->map.len;
    h->chunk = chunk_size(blk);
    h->nr = DIV_ROUND_UP(h->len, h->chunk);
    h->chunks = g_new0(PolicyChunk, h->nr);
    h->past = g_new0(Past, h->nr);
    return h;
}

void history_free(History *h)
{
    g_free(h->chunks);
    g_free(h->past);
    g_free(h);
}

bool history_fits(const History *h, const RamResetBlock *blk)
{
    return h->len == blk->map.len && h->chunk == chunk_size(blk);
}

/*
 * No load has been seen yet.  A page is present because the snapshot has it, or
 * because the guest has written to it; this is unknown.  Guess that the
 * snapshot's pages lie together, in some of the chunks.
 */
static void history_guess(History *h, uint64_t expected)
{
    uint64_t resident = 0;
    double share, behind = 0;

    for (size_t i = 0; i < h->nr; i++) {
        resident += h->chunks[i].resident;
    }
    share = resident ? (double)expected / PAGE_SIZE / resident : 0;
    for (size_t i = 0; i < h->nr; i++) {
        PolicyChunk *c = &h->chunks[i];

        behind += c->resident * share;
        c->stored = behind >= c->resident ? c->resident : 0;
        behind -= c->stored;
        c->again = c->resident - c->stored;
    }
}

static void count_resident(History *h, const GArray *data)
{
    for (size_t i = 0; i < h->nr; i++) {
        h->chunks[i].resident = 0;
    }
    for (unsigned i = 0; i < data->len; i++) {
        PrimRange range = g_array_index(data, PrimRange, i);

        while (range.len) {
            PrimRange piece = prim_range_cut(&range, h->chunk);

            h->chunks[piece.start / h->chunk].resident +=
                DIV_ROUND_UP(piece.len, PAGE_SIZE);
        }
    }
}

void history_update(History *h, const GArray *populated, uint64_t expected)
{
    count_resident(h, populated);
    for (size_t i = 0; i < h->nr; i++) {
        PolicyChunk *c = &h->chunks[i];
        Past *past = &h->past[i];
        uint32_t grown = c->resident - MIN(c->resident, past->left);

        c->again = MAX(past->again, grown);
        past->back = past->discarded ? grown : past->back;
    }
    if (!h->learnt) {
        history_guess(h, expected);
    }
}

bool history_is_learnt(const History *h)
{
    return h->learnt;
}

const PolicyChunk *history_chunks(const History *h, size_t *nr, uint64_t *chunk)
{
    *nr = h->nr;
    *chunk = h->chunk;
    return h->chunks;
}

static void add_stored(History *h, PrimRange range)
{
    while (range.len) {
        PrimRange piece = prim_range_cut(&range, h->chunk);

        h->chunks[piece.start / h->chunk].stored += piece.len / PAGE_SIZE;
    }
}

/*
 * The snapshot has written a page if the page is not known to be zero any
 * more.  Target pages may be smaller than the policy's: count a page once if
 * any part is written.
 */
static void count_stored(History *h, const ZeroMap *known)
{
    uint64_t at = 0, counted = 0;

    for (size_t i = 0; i < h->nr; i++) {
        h->chunks[i].stored = 0;
    }
    while (at < h->len) {
        uint64_t start = at + zeromap_run(known, at, h->len - at);

        at = start + zeromap_gap(known, start, h->len - start);
        if (start < at) {
            start = MAX(QEMU_ALIGN_DOWN(start, PAGE_SIZE), counted);
            counted = ROUND_UP(at, PAGE_SIZE);
            add_stored(h, (PrimRange) { start, counted - start });
        }
    }
}

static void learn_discarded(History *h, size_t i, uint32_t granule,
                            bool populated)
{
    uint32_t pages = h->chunk / PAGE_SIZE;
    PolicyChunk *c = &h->chunks[i];

    h->past[i] = (Past) {
        .left = populated ? pages
                          : MIN(pages, (uint64_t)c->stored * granule),
        .back = h->past[i].back,
        .discarded = true,
    };
    c->wasted = 0;
}

/*
 * A page that the guest has only read, or has filled with zeros, cannot be told
 * from an unused page while it stays.  It showed itself when it came back after
 * a discard.
 */
static void learn_cleared(History *h, size_t i, const uint32_t *cleared,
                          uint32_t granule, bool keeps)
{
    unsigned per_chunk = h->chunk / RAM_RESET_CHUNK;
    PolicyChunk *c = &h->chunks[i];
    Past *past = &h->past[i];
    uint64_t touched = 0;
    double useful;

    for (size_t j = i * per_chunk; j < (i + 1) * per_chunk; j++) {
        touched += (uint64_t)cleared[j] << qemu_target_page_bits();
    }
    past->left = MAX(c->resident, c->stored);
    past->again = touched / PAGE_SIZE;
    past->discarded = false;
    useful = granule * policy_granules(granule, h->chunk / PAGE_SIZE,
                                       c->stored + MAX(past->again,
                                                       past->back));
    if (!keeps && c->resident > useful) {
        c->wasted += c->resident - useful;
    }
}

/* The chunks that have been cleared in place, and not discarded before */
static bool *cleared_chunks(const History *h, const RamResetBlock *blk)
{
    bool *cleared = g_new(bool, h->nr);

    memset(cleared, true, h->nr);
    for (unsigned p = 0; p < blk->parts->len; p++) {
        RamResetPart *part = &g_array_index(blk->parts, RamResetPart, p);
        size_t first = part->start / h->chunk;

        /* A late strategy clears in place */
        if (part->strategy && !part->strategy->late) {
            memset(cleared + first, false,
                   DIV_ROUND_UP(part->len, h->chunk));
        }
    }
    return cleared;
}

void history_learn(History *h, const RamResetBlock *blk, uint32_t granule,
                   bool keeps)
{
    bool populated = ram_reset_block_is_preallocated(blk);
    g_autofree bool *cleared = cleared_chunks(h, blk);

    count_stored(h, blk->known);
    for (size_t i = 0; i < h->nr; i++) {
        if (cleared[i]) {
            learn_cleared(h, i, blk->cleared, granule, keeps || populated);
        } else {
            learn_discarded(h, i, granule, populated);
        }
    }
    h->learnt = true;
}
