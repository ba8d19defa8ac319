/*
 * ram-reset-auto: what there is to do, and what past loads have shown
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "facts.h"

/* The policy's pages */
#define PAGE_SIZE 4096

/* Of a chunk, in pages */
typedef struct Past {
    uint32_t left;              /* that were there after the last load */
    uint32_t again;             /* touched before it, where that was seen */
    uint32_t back;              /* that came back after it was last discarded */
    bool discarded;               /* by the last load */
} Past;

struct Facts {
    uint64_t len, chunk;
    size_t nr;
    bool learnt;                /* from a load */
    PolicyChunk *chunks;
    Past *past;
};

static uint64_t chunk_size(const RamResetBlock *blk)
{
    return MAX(RAM_RESET_CHUNK, blk->map.page_size);
}

Facts *facts_new(const RamResetBlock *blk)
{
    Facts *facts = g_new0(Facts, 1);

    facts->len = blk->map.len;
    facts->chunk = chunk_size(blk);
    facts->nr = DIV_ROUND_UP(facts->len, facts->chunk);
    facts->chunks = g_new0(PolicyChunk, facts->nr);
    facts->past = g_new0(Past, facts->nr);
    return facts;
}

void facts_free(Facts *facts)
{
    g_free(facts->chunks);
    g_free(facts->past);
    g_free(facts);
}

bool facts_fit(const Facts *facts, const RamResetBlock *blk)
{
    return facts->len == blk->map.len && facts->chunk == chunk_size(blk);
}

/*
 * Nothing has been seen yet.  Pages are there because of the snapshot, or
 * because the guest has written to them since; which of them, nobody knows.
 * What a snapshot has is taken to lie together, in chunks here and there.
 */
static void guess(Facts *facts, uint64_t expected)
{
    uint64_t resident = 0;
    double share, behind = 0;

    for (size_t i = 0; i < facts->nr; i++) {
        resident += facts->chunks[i].resident;
    }
    share = resident ? (double)expected / PAGE_SIZE / resident : 0;
    for (size_t i = 0; i < facts->nr; i++) {
        PolicyChunk *c = &facts->chunks[i];

        behind += c->resident * share;
        c->stored = behind >= c->resident ? c->resident : 0;
        behind -= c->stored;
        c->again = c->resident - c->stored;
    }
}

static void count_resident(Facts *facts, const GArray *data)
{
    for (size_t i = 0; i < facts->nr; i++) {
        facts->chunks[i].resident = 0;
    }
    for (unsigned i = 0; i < data->len; i++) {
        PrimRange range = g_array_index(data, PrimRange, i);
        uint64_t len;

        for (; range.len; range.start += len, range.len -= len) {
            len = MIN(range.len, facts->chunk - range.start % facts->chunk);
            facts->chunks[range.start / facts->chunk].resident +=
                DIV_ROUND_UP(len, PAGE_SIZE);
        }
    }
}

void facts_update(Facts *facts, const GArray *populated, uint64_t expected)
{
    count_resident(facts, populated);
    for (size_t i = 0; i < facts->nr; i++) {
        PolicyChunk *c = &facts->chunks[i];
        Past *past = &facts->past[i];
        uint32_t grown = c->resident - MIN(c->resident, past->left);

        c->again = MAX(past->again, grown);
        past->back = past->discarded ? grown : past->back;
    }
    if (!facts->learnt) {
        guess(facts, expected);
    }
}

bool facts_are_learnt(const Facts *facts)
{
    return facts->learnt;
}

const PolicyChunk *facts_chunks(const Facts *facts, size_t *nr, uint64_t *chunk)
{
    *nr = facts->nr;
    *chunk = facts->chunk;
    return facts->chunks;
}

/* What the snapshot has written is what is not known to be zero any more */
static void count_stored(Facts *facts, const ZeroMap *known)
{
    uint64_t at = 0, end;

    for (size_t i = 0; i < facts->nr; i++) {
        facts->chunks[i].stored = 0;
    }
    while (at < facts->len) {
        at += zeromap_run(known, at, facts->len - at);
        end = at + zeromap_gap(known, at, facts->len - at);
        while (at < end) {
            uint64_t upto = MIN(end, (at / facts->chunk + 1) * facts->chunk);

            facts->chunks[at / facts->chunk].stored += (upto - at) / PAGE_SIZE;
            at = upto;
        }
    }
}

static void learn_discarded(Facts *facts, size_t i, uint32_t granule,
                            bool populated)
{
    uint32_t pages = facts->chunk / PAGE_SIZE;
    PolicyChunk *c = &facts->chunks[i];

    facts->past[i].left = populated ? pages
                          : MIN(pages, (uint64_t)c->stored * granule);
    facts->past[i].again = 0;
    facts->past[i].discarded = true;
    c->vain = 0;
}

/*
 * Pages that the guest has only read, or has filled with zeros, cannot be told
 * from those that it has not used; but they came back when they were discarded.
 */
static void learn_cleared(Facts *facts, size_t i, const uint32_t *cleared,
                          uint32_t granule, bool keeps)
{
    unsigned per_chunk = facts->chunk / RAM_RESET_CHUNK;
    PolicyChunk *c = &facts->chunks[i];
    Past *past = &facts->past[i];
    uint64_t touched = 0;
    double useful;

    for (size_t j = i * per_chunk; j < (i + 1) * per_chunk; j++) {
        touched += (uint64_t)cleared[j] << qemu_target_page_bits();
    }
    past->left = MAX(c->resident, c->stored);
    past->again = touched / PAGE_SIZE;
    past->discarded = false;
    useful = granule * policy_granules(granule, facts->chunk / PAGE_SIZE,
                                       c->stored + MAX(past->again,
                                                       past->back));
    if (!keeps && c->resident > useful) {
        c->vain += c->resident - useful;
    }
}

/* Which chunks have been cleared in place, and not discarded before */
static bool *cleared_chunks(const Facts *facts, const RamResetBlock *blk)
{
    RamResetClass *clearing = ram_reset_class(TYPE_RAM_RESET_MEMSET);
    bool *cleared = g_new(bool, facts->nr);

    memset(cleared, true, facts->nr);
    for (unsigned p = 0; p < blk->parts->len; p++) {
        RamResetPart *part = &g_array_index(blk->parts, RamResetPart, p);
        size_t first = part->start / facts->chunk;

        if (part->strategy != clearing) {
            memset(cleared + first, false,
                   DIV_ROUND_UP(part->len, facts->chunk));
        }
    }
    return cleared;
}

void facts_learn(Facts *facts, const RamResetBlock *blk, uint32_t granule,
                 bool keeps)
{
    bool populated = ram_reset_block_is_preallocated(blk);
    g_autofree bool *cleared = cleared_chunks(facts, blk);

    count_stored(facts, blk->known);
    for (size_t i = 0; i < facts->nr; i++) {
        if (cleared[i]) {
            learn_cleared(facts, i, blk->cleared, granule, keeps || populated);
        } else {
            learn_discarded(facts, i, granule, populated);
        }
    }
    facts->learnt = true;
}
