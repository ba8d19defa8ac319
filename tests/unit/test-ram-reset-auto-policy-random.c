/*
 * Unit tests for system/ram-reset/auto/policy.c, with random facts and costs
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include <math.h>
#include "system/ram-reset/auto/policy.h"

#define CHUNK_PAGES 512
#define CHUNKS      8

/* As in policy.c, in nanoseconds */
#define LEAST_SAVED 100e3

static PolicyChoice choice_of(const MemoryCosts *costs,
                              const PolicyFacts *facts)
{
    bool discard[CHUNKS];

    return policy_decide(costs, facts, discard).choice;
}

static double score_of(const MemoryCosts *costs, const PolicyFacts *facts,
                       unsigned mask)
{
    PolicyFacts one = *facts;
    double sum = 0;

    one.nr_chunks = 1;
    for (unsigned i = 0; i < facts->nr_chunks; i++) {
        bool discarded = mask >> i & 1, before = i && (mask >> (i - 1) & 1);
        PolicyChoice choice;
        PolicyDecision d;
        bool discard;

        one.chunks = &facts->chunks[i];
        d = policy_decide(costs, &one, &discard);
        choice = discarded ? POLICY_DISCARD : POLICY_CLEAR;
        sum += policy_score(facts->objective, &d.estimates[choice]);
        sum -= discarded && before ? costs->discard_call : 0;
    }
    return sum;
}

static PolicyFacts random_facts(GRand *rand, PolicyChunk *chunks, unsigned nr)
{
    for (unsigned i = 0; i < nr; i++) {
        bool dense = g_rand_boolean(rand);

        chunks[i].resident = g_rand_int_range(rand, 0, dense ? 513 : 8);
        chunks[i].stored = g_rand_int_range(rand, 0, 100);
        chunks[i].again = g_rand_int_range(rand, 0, chunks[i].resident + 1);
        chunks[i].wasted = dense ? g_rand_int_range(rand, 0, 2000) : 0;
    }
    return (PolicyFacts) {
        .objective = g_rand_int_range(rand, POLICY_TOTAL, POLICY_FOOTPRINT + 1),
        .chunks = chunks, .nr_chunks = nr, .chunk_pages = CHUNK_PAGES,
        .threads = 1, .can_discard = true, .can_remap = g_rand_boolean(rand),
        .can_split = true,
    };
}

static MemoryCosts random_costs(GRand *rand)
{
    return (MemoryCosts) {
        .granule = g_rand_boolean(rand) ? 1 : CHUNK_PAGES,
        .test = g_rand_double_range(rand, 10, 300),
        .clear = g_rand_double_range(rand, 10, 300),
        .discard_call = g_rand_double_range(rand, 100, 20000),
        .discard = g_rand_double_range(rand, 1, 500),
        .remap_call = g_rand_double_range(rand, 1000, 100000),
        .remap = g_rand_double_range(rand, 1, 500),
        .fault = g_rand_double_range(rand, 100, 10000),
        .guest_fault = g_rand_double_range(rand, 0, 5000),
        .guest_map = g_rand_double_range(rand, 0, 5000),
    };
}

/* Compare with all ways to split a block; no choice is far from the best */
static void test_split_is_the_best(void)
{
    g_autoptr(GRand) rand = g_rand_new_with_seed(4);

    for (unsigned round = 0; round < 2000; round++) {
        PolicyChunk chunks[CHUNKS];
        PolicyFacts facts = random_facts(rand, chunks, 2 + round % 7);
        MemoryCosts costs = random_costs(rand);
        bool discard[CHUNKS];
        PolicyDecision d = policy_decide(&costs, &facts, discard);
        double split = policy_score(facts.objective,
                                    &d.estimates[POLICY_SPLIT]);
        double best = INFINITY, chosen;

        for (unsigned mask = 0; mask < 1u << facts.nr_chunks; mask++) {
            best = MIN(best, score_of(&costs, &facts, mask));
        }
        g_assert_cmpfloat_with_epsilon(split, best, best / 1e9 + 1);
        chosen = policy_score(facts.objective, &d.estimates[d.choice]);
        for (PolicyChoice c = 0; c < POLICY_NR_CHOICES; c++) {
            double margin = c == POLICY_REMAP ? 0.75 : 0.9 * 0.95;

            double score = policy_score(facts.objective, &d.estimates[c]);

            g_assert_true(!d.estimates[c].possible ||
                          chosen * margin <= score ||
                          chosen <= score + LEAST_SAVED);
        }
    }
}

/*
 * For memory that is never used again, any number of loads cost at most twice
 * the best choice in hindsight, plus one load's testing, plus the saving that
 * another choice needs.
 */
static void test_owed(void)
{
    g_autoptr(GRand) rand = g_rand_new_with_seed(6);

    for (unsigned round = 0; round < 500; round++) {
        MemoryCosts costs = random_costs(rand);
        PolicyChunk chunks[CHUNKS];
        PolicyFacts facts = random_facts(rand, chunks, 8);
        double spent = 0, discarding, testing;
        bool discard[CHUNKS];

        facts.objective = POLICY_TOTAL;
        for (unsigned i = 0; i < 8; i++) {
            chunks[i] = (PolicyChunk) { .resident = CHUNK_PAGES };
        }
        discarding = costs.discard_call + 8 * CHUNK_PAGES * costs.discard;
        testing = 8 * CHUNK_PAGES * costs.test;
        for (unsigned load = 1; load < 200; load++) {
            PolicyDecision d = policy_decide(&costs, &facts, discard);

            spent += d.estimates[d.choice].reset;
            g_assert_cmpfloat(spent, <=, 1.2 * (2 * MIN(discarding,
                              load * testing) + testing + LEAST_SAVED));
            if (d.choice != POLICY_CLEAR) {
                break;
            }
            for (unsigned i = 0; i < 8; i++) {
                chunks[i].wasted += CHUNK_PAGES;
            }
        }
        /* Discarding rarely takes as long as testing 200 times */
        g_assert_true(discarding > 100 * testing ||
                      choice_of(&costs, &facts) != POLICY_CLEAR);
    }
}

/* An impossible choice is never made; clearing remains if all others are */
static void test_refused(void)
{
    g_autoptr(GRand) rand = g_rand_new_with_seed(5);
    PolicyChunk chunks[CHUNKS];

    for (unsigned round = 0; round < 500; round++) {
        PolicyFacts facts = random_facts(rand, chunks, 8);
        MemoryCosts costs = random_costs(rand);
        PolicyChoice choice;

        facts.can_discard = false;
        facts.can_remap = round & 1;
        choice = choice_of(&costs, &facts);
        g_assert_true(choice == POLICY_CLEAR ||
                      (choice == POLICY_REMAP && facts.can_remap));
    }
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/policy/split-is-the-best", test_split_is_the_best);
    g_test_add_func("/policy/owed", test_owed);
    g_test_add_func("/policy/refused", test_refused);
    return g_test_run();
}
