/*
 * ram-reset-auto: decide which strategy is the cheapest
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

/*
 * For each chunk of a block and each strategy, the policy estimates the cost of
 * the next load: making memory zero, the faults while the snapshot is read, and
 * the guest's faults after it.  The sums over all chunks compare the strategies
 * that treat all chunks alike.
 *
 * A fourth choice splits the block: it clears some chunks and discards others.
 * A run of discarded chunks needs one more call, so that the best choice for a
 * chunk depends on the chunk before it.  Dynamic programming over two states a
 * chunk, cleared or discarded, finds the cheapest sequence in linear time.
 *
 * Consider a page that neither the snapshot nor the guest uses any more.
 * Clearing has to test at each load that it is zero; discarding costs more, but
 * only once.  The number of loads to come is unknown, and decides which of them
 * is cheaper.  This is the ski rental problem: a test is the rent, a discard is
 * the price.  The answer is to test until tests have cost as much as the
 * discard would have, and then to discard.  If there are fewer loads, testing
 * was the best choice; otherwise an immediate discard was, and tests and
 * discard together cost at most twice as much.  Clearing is therefore charged
 * with its debt: the tests wasted since the last discard. (Both bounds grow by
 * one load's tests, and by the margins below.) If the guest does use a page
 * again, its tests were not wasted.
 *
 * Costs are measured on scratch memory, which is small and in one piece.  A
 * guest's pages are scattered over gigabytes and take longer, up to 5 times in
 * measurements.  So each strategy has a factor, which each load by that
 * strategy corrects: by the square root of the error and at most 1.5 times,
 * since one load may have been disturbed.  The factors of unused strategies
 * slowly return towards 1, so that these strategies are tried again some day.
 */

#include "qemu/osdep.h"
#include <math.h>
#include "system/ram-reset/auto/policy.h"

/* A thread for each 64 MiB, as in block/clear.c */
#define PAGES_A_THREAD 16384

/* More nanoseconds than any page can cost */
#define FOOTPRINT_NS_A_PAGE 1e9

/* The largest error of calibrated costs */
#define MOST_SLOWER   8
/*
 * The largest change of the factor by one load, and its decay in an unused
 * strategy
 */
#define MOST_AT_ONCE  1.5
#define DECAY        0.98

/*
 * A choice must take less than this share of the time of an earlier choice in
 * the enum.  Estimates are not exact, so that the simpler choice is preferred.
 */
static const double margins[POLICY_NR_CHOICES] = {
    [POLICY_DISCARD] = 0.95, [POLICY_REMAP] = 0.95, [POLICY_SPLIT] = 0.9,
};

/*
 * Discarding and remapping return the same pages to the host, which is most of
 * their cost.  On the hosts seen so far neither is faster: the winner changes
 * with every measurement.
 */
#define MARGIN_OF_EQUALS 0.75

/*
 * The least time that a choice must save, in nanoseconds.  If few pages are
 * present, all strategies take less than this, and one load that the host
 * disturbed would change the choice.  The fastest load takes 20 times as long.
 */
#define LEAST_SAVED 100e3

double policy_score(PolicyObjective objective, const PolicyEstimate *e)
{
    switch (objective) {
    case POLICY_LATENCY:
        return e->reset + e->load + e->owed;
    case POLICY_FOOTPRINT:
        return e->resident * FOOTPRINT_NS_A_PAGE + e->reset + e->load +
               e->guest + e->owed;
    default:
        return e->reset + e->load + e->guest + e->owed;
    }
}

static void policy_add(PolicyEstimate *sum, const PolicyEstimate *e)
{
    sum->reset += e->reset;
    sum->load += e->load;
    sum->guest += e->guest;
    sum->owed += e->owed;
    sum->resident += e->resident;
}

double policy_granules(uint32_t granule, uint32_t chunk_pages, uint32_t pages)
{
    double all = (double)chunk_pages / granule;

    if (granule == 1) {
        return pages;
    }
    return all <= 1 ? pages > 0 : all * (1 - pow(1 - 1 / all, pages));
}

static double policy_granules_of(const MemoryCosts *costs,
                                 const PolicyFacts *facts, uint32_t pages)
{
    return policy_granules(costs->granule, facts->chunk_pages, pages);
}

static unsigned clearing_threads(const PolicyFacts *facts)
{
    uint64_t pages = 0, wanted;

    for (size_t i = 0; i < facts->nr_chunks; i++) {
        pages += facts->chunks[i].resident;
    }
    wanted = (pages + PAGES_A_THREAD - 1) / PAGES_A_THREAD;
    return MAX(1, MIN(facts->threads, wanted));
}

static PolicyEstimate estimate_clear(const MemoryCosts *costs,
                                     const PolicyFacts *facts,
                                     const PolicyChunk *c, unsigned threads)
{
    uint32_t left = c->resident - MIN(c->resident, c->stored);
    uint32_t dirty = MIN(left, c->again);
    uint32_t missing = c->stored - MIN(c->resident, c->stored);
    /* If a granule fills a chunk, it is either present as a whole or absent */
    double brought = costs->granule >= facts->chunk_pages && c->resident
                     ? 0 : policy_granules_of(costs, facts, missing);

    return (PolicyEstimate) {
        .possible = true,
        .reset = (dirty * costs->clear + (left - dirty) * costs->test) /
                 threads,
        .load = brought * costs->fault,
        .owed = c->wasted * costs->test / threads,
        .resident = c->resident + brought * costs->granule,
    };
}

/* @remap: use fresh memory; else discard pages */
static PolicyEstimate estimate_empty(const MemoryCosts *costs,
                                     const PolicyFacts *facts,
                                     const PolicyChunk *c, bool remap)
{
    bool populated = remap && facts->prealloc;
    double all = (double)facts->chunk_pages / costs->granule;
    double loaded = policy_granules_of(costs, facts, c->stored);
    double touched = policy_granules_of(costs, facts, c->stored + c->again);
    /*
     * Assume that the guest uses the same share of the loaded pages as of the
     * rest
     */
    double mapped = policy_granules_of(costs, facts, MIN(c->stored, c->again));
    double fault = populated ? 0 : costs->fault;

    return (PolicyEstimate) {
        .possible = true,
        .reset = c->resident * (remap ? costs->remap : costs->discard) +
                 (populated ? all * costs->fault : 0),
        .load = loaded * fault,
        .guest = (touched - loaded) * (populated ? costs->guest_map :
                                       fault + costs->guest_fault) +
                 mapped * costs->guest_map,
        .resident = populated ? facts->chunk_pages : loaded * costs->granule,
    };
}

/*
 * Work backwards.  At first @discard has the best choice for a chunk if the
 * chunk before it is cleared, and @follow the best choice if that is discarded.
 */
static PolicyEstimate policy_split(const MemoryCosts *costs,
                                   const PolicyFacts *facts,
                                   unsigned threads, bool *discard)
{
    g_autofree bool *follow = g_new(bool, facts->nr_chunks);
    double after_clear = 0, after_discard = 0;
    PolicyEstimate sum = { .possible = true };
    bool discarding = false;

    for (size_t i = facts->nr_chunks; i-- > 0;) {
        const PolicyChunk *c = &facts->chunks[i];
        PolicyEstimate clear = estimate_clear(costs, facts, c, threads);
        PolicyEstimate empty = estimate_empty(costs, facts, c, false);
        double by_clear = policy_score(facts->objective, &clear) + after_clear;
        double by_discard = policy_score(facts->objective, &empty) +
                            after_discard;

        discard[i] = by_discard + costs->discard_call < by_clear;
        follow[i] = by_discard < by_clear;
        after_clear = discard[i] ? by_discard + costs->discard_call : by_clear;
        after_discard = follow[i] ? by_discard : by_clear;
    }
    for (size_t i = 0; i < facts->nr_chunks; i++) {
        const PolicyChunk *c = &facts->chunks[i];
        PolicyEstimate e;

        discard[i] = discarding ? follow[i] : discard[i];
        sum.reset += discard[i] && !discarding ? costs->discard_call : 0;
        discarding = discard[i];
        e = discarding ? estimate_empty(costs, facts, c, false)
                     : estimate_clear(costs, facts, c, threads);
        policy_add(&sum, &e);
    }
    return sum;
}

/* Compare numbers of pages exactly, times with a margin */
static bool is_better(PolicyObjective objective,
                      const PolicyEstimate *estimates, PolicyChoice choice,
                      PolicyChoice other)
{
    double score, old;
    const PolicyEstimate *e = &estimates[choice], *than = &estimates[other];
    double margin = choice == POLICY_REMAP && other == POLICY_DISCARD
                    ? MARGIN_OF_EQUALS : margins[choice];

    if (objective == POLICY_FOOTPRINT) {
        if (e->resident != than->resident) {
            return e->resident < than->resident;
        }
        objective = POLICY_TOTAL;
    }
    score = policy_score(objective, e);
    old = policy_score(objective, than);
    return score < old * margin && score < old - LEAST_SAVED;
}

PolicyDecision policy_decide(const MemoryCosts *costs,
                             const PolicyFacts *facts, bool *discard)
{
    PolicyDecision d = { .choice = POLICY_CLEAR };
    PolicyEstimate *e = d.estimates;
    unsigned threads = clearing_threads(facts);

    e[POLICY_CLEAR].possible = true;
    e[POLICY_DISCARD].possible = facts->can_discard;
    e[POLICY_DISCARD].reset = costs->discard_call;
    e[POLICY_REMAP].possible = facts->can_remap;
    e[POLICY_REMAP].reset = costs->remap_call;
    for (size_t i = 0; i < facts->nr_chunks; i++) {
        const PolicyChunk *c = &facts->chunks[i];
        PolicyEstimate clear = estimate_clear(costs, facts, c, threads);
        PolicyEstimate discarded = estimate_empty(costs, facts, c, false);
        PolicyEstimate fresh = estimate_empty(costs, facts, c, true);

        policy_add(&e[POLICY_CLEAR], &clear);
        policy_add(&e[POLICY_DISCARD], &discarded);
        policy_add(&e[POLICY_REMAP], &fresh);
    }
    if (facts->can_discard && facts->can_split && facts->nr_chunks > 1) {
        e[POLICY_SPLIT] = policy_split(costs, facts, threads, discard);
    }
    for (PolicyChoice c = POLICY_DISCARD; c < POLICY_NR_CHOICES; c++) {
        if (e[c].possible && is_better(facts->objective, e, c, d.choice)) {
            d.choice = c;
        }
    }
    return d;
}

/*
 * Whether the choice discards all pages: estimates of both are wrong for one
 * reason
 */
static bool discards_all(PolicyChoice choice)
{
    return choice == POLICY_DISCARD || choice == POLICY_REMAP;
}

bool policy_learn_together(PolicyChoice one, PolicyChoice other)
{
    return one == other || (discards_all(one) && discards_all(other));
}

MemoryCosts policy_experienced(const MemoryCosts *costs,
                               const double slower[POLICY_NR_CHOICES])
{
    MemoryCosts c = *costs;

    c.test *= slower[POLICY_CLEAR];
    c.clear *= slower[POLICY_CLEAR];
    c.discard_call *= slower[POLICY_DISCARD];
    c.discard *= slower[POLICY_DISCARD];
    c.remap_call *= slower[POLICY_REMAP];
    c.remap *= slower[POLICY_REMAP];
    return c;
}

double policy_slower(double slower, double ratio)
{
    slower *= MIN(MAX(sqrt(ratio), 1 / MOST_AT_ONCE), MOST_AT_ONCE);
    return MIN(MAX(slower, 1.0 / MOST_SLOWER), MOST_SLOWER);
}

double policy_slower_unused(double slower)
{
    return pow(slower, DECAY);
}
