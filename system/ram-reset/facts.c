/*
 * ram-reset-auto: what there is to do, and what past loads have shown
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "facts.h"

/* The policy's pages */
#define PAGE_SIZE 4096

struct Facts {
    uint64_t len, chunk;
    size_t nr;
    bool learnt;                /* from a load */
    PolicyChunk *chunks;
    /* Pages, chunk by chunk, after the last load */
    uint32_t *left;             /* that were there */
    uint32_t *again;            /* touched before it, where that was seen */
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
    facts->left = g_new0(uint32_t, facts->nr);
    facts->again = g_new0(uint32_t, facts->nr);
    return facts;
}

void facts_free(Facts *facts)
{
    g_free(facts->chunks);
    g_free(facts->left);
    g_free(facts->again);
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
        RamResetRange range = g_array_index(data, RamResetRange, i);

        while (range.start < range.end) {
            size_t at = range.start / facts->chunk;
            uint64_t upto = MIN(range.end, (at + 1) * facts->chunk);

            facts->chunks[at].resident += DIV_ROUND_UP(upto - range.start,
                                                       PAGE_SIZE);
            range.start = upto;
        }
    }
}

void facts_update(Facts *facts, const RamResetBlock *blk)
{
    count_resident(facts, blk->data);
    for (size_t i = 0; i < facts->nr; i++) {
        PolicyChunk *c = &facts->chunks[i];
        uint32_t grown = c->resident - MIN(c->resident, facts->left[i]);

        c->again = MAX(facts->again[i], grown);
    }
    if (!facts->learnt) {
        guess(facts, blk->expected);
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

static void learn_chunk(Facts *facts, size_t i, const RamResetBlock *blk,
                        bool cleared, bool populated, uint32_t granule)
{
    PolicyChunk *c = &facts->chunks[i];
    unsigned per_chunk = facts->chunk / RAM_RESET_CHUNK;
    uint32_t pages = facts->chunk / PAGE_SIZE, back;
    uint64_t touched = 0;

    if (!cleared) {
        facts->left[i] = populated ? pages
                                   : MIN(pages, (uint64_t)c->stored * granule);
        facts->again[i] = 0;
        c->vain = 0;
        return;
    }
    for (size_t j = i * per_chunk; j < (i + 1) * per_chunk; j++) {
        touched += (uint64_t)blk->cleared[j] << qemu_target_page_bits();
    }
    facts->left[i] = MAX(c->resident, c->stored);
    facts->again[i] = touched / PAGE_SIZE;
    back = granule * policy_granules(granule, pages,
                                     c->stored + facts->again[i]);
    if (!populated && c->resident > back) {
        c->vain += c->resident - back;
    }
}

void facts_learn(Facts *facts, const RamResetBlock *blk, uint32_t granule)
{
    RamResetClass *clearing = ram_reset_class(TYPE_RAM_RESET_MEMSET);
    bool populated = ram_reset_block_is_preallocated(blk);

    count_stored(facts, blk->known);
    for (unsigned p = 0; p < blk->parts->len; p++) {
        RamResetPart *part = &g_array_index(blk->parts, RamResetPart, p);

        for (uint64_t at = part->start; at < part->start + part->len;
             at += facts->chunk) {
            learn_chunk(facts, at / facts->chunk, blk,
                        part->strategy == clearing, populated, granule);
        }
    }
    facts->learnt = true;
}
