/*
 * Unit tests for system/ram-reset/auto/policy.c
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "system/ram-reset/auto/policy.h"
#include "host-costs.h"

#define CHUNK_PAGES 512
#define CHUNKS      512             /* 1 GiB */

/* Pages of a chunk, the same for each, or different in the second half */
typedef struct Scene {
    const char *name;
    PolicyChunk first, second;
} Scene;

enum { EMPTY, SPARSE, GROWN, LEFT, DENSE, MIXED, STORED };

static const Scene scenes[] = {
    [EMPTY] = { "nothing is populated", { 0, 0, 0 }, { 0, 0, 0 } },
    [SPARSE] = { "1 % is, and used again", { 5, 0, 5 }, { 5, 0, 5 } },
    [GROWN] = { "all is, 1 % is used again", { 512, 0, 5 }, { 512, 0, 5 } },
    [LEFT] = { "all is, and never used again", { 512, 0, 0 }, { 512, 0, 0 } },
    [DENSE] = { "all is, and used again", { 512, 0, 512 }, { 512, 0, 512 } },
    [MIXED] = { "half is used again, half is not", { 512, 0, 512 },
                { 512, 0, 0 } },
    [STORED] = { "the snapshot writes all", { 512, 512, 0 }, { 512, 512, 0 } },
};

static const char *const objectives[] = { "total", "latency", "footprint" };
static const char *const choices[] = { "clear", "discard", "remap", "split" };

static PolicyFacts facts_of(const Scene *scene, PolicyObjective objective)
{
    static PolicyChunk chunks[CHUNKS];

    for (unsigned i = 0; i < CHUNKS; i++) {
        chunks[i] = i < CHUNKS / 2 ? scene->first : scene->second;
    }
    return (PolicyFacts) {
        .objective = objective, .chunks = chunks, .nr_chunks = CHUNKS,
        .chunk_pages = CHUNK_PAGES, .threads = 2, .can_discard = true,
        .can_remap = true, .can_split = true,
    };
}

typedef struct Case {
    const char *host;
    CostsKind kind;
    PolicyObjective objective;
    int scene;
    PolicyChoice choice;
} Case;

#define CASE(host, kind, objective, scene, choice) \
    { host, COSTS_##kind, POLICY_##objective, scene, POLICY_##choice }

static const Case cases[] = {
    CASE("nested-kvm", ANONYMOUS, TOTAL, EMPTY, CLEAR),
    CASE("nested-kvm", ANONYMOUS, TOTAL, SPARSE, CLEAR),
    CASE("nested-kvm", ANONYMOUS, TOTAL, GROWN, CLEAR),
    CASE("nested-kvm", ANONYMOUS, TOTAL, LEFT, CLEAR),
    CASE("nested-kvm", ANONYMOUS, TOTAL, STORED, CLEAR),
    CASE("nested-kvm", ANONYMOUS, FOOTPRINT, LEFT, DISCARD),
    CASE("nested-kvm", ANONYMOUS, FOOTPRINT, DENSE, DISCARD),
    CASE("nested-kvm", HUGETLB, TOTAL, SPARSE, CLEAR),
    CASE("nested-kvm", HUGETLB, TOTAL, LEFT, DISCARD),
    CASE("tcg", ANONYMOUS, TOTAL, DENSE, CLEAR),
    CASE("tcg", SHARED, TOTAL, LEFT, CLEAR),
    CASE("thp", ANONYMOUS, TOTAL, DENSE, CLEAR),
    CASE("thp", ANONYMOUS, TOTAL, LEFT, REMAP),
    CASE("thp", ANONYMOUS, TOTAL, MIXED, SPLIT),
    CASE("thp", ANONYMOUS, LATENCY, GROWN, REMAP),
    CASE("bare-metal", ANONYMOUS, TOTAL, GROWN, CLEAR),
    CASE("bare-metal", ANONYMOUS, LATENCY, GROWN, DISCARD),
    CASE("bare-metal", ANONYMOUS, TOTAL, LEFT, DISCARD),
    CASE("bare-metal", ANONYMOUS, TOTAL, MIXED, CLEAR),
    CASE("bare-metal", SHARED, LATENCY, LEFT, CLEAR),
    CASE("paravirtual", ANONYMOUS, TOTAL, LEFT, CLEAR),
    CASE("paravirtual", ANONYMOUS, LATENCY, DENSE, CLEAR),
    CASE("paravirtual", SHARED, FOOTPRINT, DENSE, DISCARD),
};

static void test_decision(const void *opaque)
{
    const Case *c = opaque;
    HostCosts costs = host_costs_load(c->host);
    PolicyFacts facts = facts_of(&scenes[c->scene], c->objective);
    bool discard[CHUNKS];
    PolicyDecision d = policy_decide(&costs.kinds[c->kind], &facts, discard);

    for (PolicyChoice i = 0; i < POLICY_NR_CHOICES; i++) {
        const PolicyEstimate *e = &d.estimates[i];

        g_test_message("%s: reset %.3f, load %.3f, guest %.3f ms, %u pages",
                       choices[i], e->reset / 1e6, e->load / 1e6,
                       e->guest / 1e6, (unsigned)e->resident);
    }
    g_assert_cmpstr(choices[d.choice], ==, choices[c->choice]);
    for (unsigned i = 0; d.choice == POLICY_SPLIT && i < CHUNKS; i++) {
        g_assert_cmpint(discard[i], ==, i >= CHUNKS / 2);
    }
}

/* 1 page of 4 KiB in each of 3 chunks, and costs in round numbers */
static void test_estimates(void)
{
    static const PolicyChunk chunks[] = {
        { 10, 4, 2, 0 }, { 0, 3, 0, 0 }, { 6, 0, 6, 0 },
    };
    MemoryCosts costs = {
        .granule = 1, .test = 1, .clear = 3, .discard_call = 100, .discard = 10,
        .remap_call = 1000, .remap = 20, .fault = 50, .guest_fault = 7,
        .guest_map = 5,
    };
    PolicyFacts facts = {
        .chunks = chunks, .nr_chunks = 3, .chunk_pages = CHUNK_PAGES,
        .threads = 1, .can_discard = true, .can_remap = true, .can_split = true,
    };
    bool discard[3];
    PolicyDecision d = policy_decide(&costs, &facts, discard);
    PolicyEstimate *e = d.estimates;

    /* 4 tested and 2 cleared; 6 cleared; 3 absent */
    g_assert_cmpfloat(e[POLICY_CLEAR].reset, ==, 4 * 1 + 8 * 3);
    g_assert_cmpfloat(e[POLICY_CLEAR].load, ==, 3 * 50);
    g_assert_cmpfloat(e[POLICY_CLEAR].guest, ==, 0);
    g_assert_cmpuint(e[POLICY_CLEAR].resident, ==, 16 + 3);
    g_assert_cmpfloat(e[POLICY_DISCARD].reset, ==, 100 + 16 * 10);
    g_assert_cmpfloat(e[POLICY_DISCARD].load, ==, 7 * 50);
    g_assert_cmpfloat(e[POLICY_DISCARD].guest, ==, 8 * (50 + 7) + 2 * 5);
    g_assert_cmpuint(e[POLICY_DISCARD].resident, ==, 7);
    g_assert_cmpfloat(e[POLICY_REMAP].reset, ==, 1000 + 16 * 20);
    g_assert_cmpfloat(e[POLICY_REMAP].load, ==, 7 * 50);
    g_assert_cmpint(d.choice, ==, POLICY_CLEAR);

    facts.prealloc = true;
    d = policy_decide(&costs, &facts, discard);
    g_assert_cmpfloat(e[POLICY_REMAP].reset, ==,
                      1000 + 16 * 20 + 3 * CHUNK_PAGES * 50);
    g_assert_cmpfloat(e[POLICY_REMAP].load, ==, 0);
    g_assert_cmpuint(e[POLICY_REMAP].resident, ==, 3 * CHUNK_PAGES);

    facts.prealloc = false;
    costs.granule = CHUNK_PAGES;
    d = policy_decide(&costs, &facts, discard);
    g_assert_cmpfloat(e[POLICY_CLEAR].load, ==, 50);
    g_assert_cmpfloat(e[POLICY_DISCARD].load, ==, 2 * 50);
    g_assert_cmpfloat(e[POLICY_DISCARD].guest, ==, 1 * (50 + 7) + 1 * 5);
    g_assert_cmpuint(e[POLICY_DISCARD].resident, ==, 2 * CHUNK_PAGES);
}

static PolicyChoice choice_of(const MemoryCosts *costs,
                              const PolicyFacts *facts)
{
    bool discard[CHUNKS];

    return policy_decide(costs, facts, discard).choice;
}

/* Estimates approach the times of loads; a single load has little weight */
static void test_experience(void)
{
    static const double truths[] = { 0.3, 1, 5 };
    MemoryCosts costs = { .test = 2, .clear = 3, .discard_call = 5,
                          .discard = 7, .remap_call = 11, .remap = 13,
                          .fault = 17 };
    double slower[POLICY_NR_CHOICES] = { 2, 3, 4, 5 };
    MemoryCosts c = policy_experienced(&costs, slower);

    g_assert_true(c.test == 4 && c.clear == 6 && c.discard_call == 15 &&
                  c.discard == 21 && c.remap_call == 44 && c.remap == 52 &&
                  c.fault == 17);
    for (unsigned i = 0; i < G_N_ELEMENTS(truths); i++) {
        double s = 1, disturbed;

        for (unsigned load = 0; load < 8; load++) {
            s = policy_slower(s, truths[i] / s);
        }
        g_assert_cmpfloat_with_epsilon(s, truths[i], truths[i] / 20);
        disturbed = policy_slower(s, 1000);
        g_assert_cmpfloat(disturbed, <=, 1.5 * s);
        g_assert_cmpfloat(policy_slower(disturbed, truths[i] / disturbed), <,
                          1.25 * truths[i]);
        /* The experience fades */
        for (unsigned load = 0; load < 200; load++) {
            s = policy_slower_unused(s);
        }
        g_assert_cmpfloat_with_epsilon(s, 1, 0.1);
    }
    g_assert_cmpfloat(policy_slower(8, 10), <=, 8);
    g_assert_cmpfloat(policy_slower(1.0 / 8, 0), >=, 1.0 / 8);
}

/* A disturbed load changes no decision if there is little work */
static void test_next_to_nothing(void)
{
    PolicyChunk chunk = { .resident = CHUNK_PAGES, .stored = 31 };
    PolicyFacts facts = {
        .objective = POLICY_TOTAL, .chunks = &chunk, .nr_chunks = 1,
        .chunk_pages = CHUNK_PAGES, .threads = 1, .can_discard = true,
        .can_remap = true,
    };
    MemoryCosts costs = {
        .granule = 1, .test = 120, .clear = 200, .discard_call = 7000,
        .remap_call = 17000, .fault = 2500,
    };

    g_assert_cmpint(choice_of(&costs, &facts), ==, POLICY_CLEAR);
    costs.test *= 2;
    g_assert_cmpint(choice_of(&costs, &facts), ==, POLICY_CLEAR);
    costs.test *= 2;
    g_assert_cmpint(choice_of(&costs, &facts), ==, POLICY_DISCARD);
}

/* Times of equal choices vary, but the decision must not */
static void test_equals(void)
{
    PolicyChunk chunk = { .resident = CHUNK_PAGES, .stored = 1 };
    PolicyFacts facts = {
        .objective = POLICY_FOOTPRINT, .chunks = &chunk, .nr_chunks = 1,
        .chunk_pages = CHUNK_PAGES, .threads = 1, .can_discard = true,
        .can_remap = true,
    };
    MemoryCosts costs = { .granule = 1, .test = 1000, .clear = 1000,
                          .discard = 1000, .remap = 800, .fault = 5000 };

    g_assert_cmpint(choice_of(&costs, &facts), ==, POLICY_DISCARD);
    costs.remap = 1200;
    g_assert_cmpint(choice_of(&costs, &facts), ==, POLICY_DISCARD);
    costs.remap = 300;
    g_assert_cmpint(choice_of(&costs, &facts), ==, POLICY_REMAP);
    for (PolicyChoice c = 0; c < POLICY_NR_CHOICES; c++) {
        bool discards = c == POLICY_DISCARD || c == POLICY_REMAP;

        g_assert_true(policy_learn_together(c, c));
        g_assert_true(policy_learn_together(POLICY_DISCARD, c) == discards);
        g_assert_true(policy_learn_together(c, POLICY_REMAP) == discards);
    }
}

/* A guess of the places of pages is no reason to split */
static void test_no_split_by_guess(void)
{
    HostCosts costs = host_costs_load("thp");
    PolicyFacts facts = facts_of(&scenes[MIXED], POLICY_TOTAL);

    facts.can_split = false;
    g_assert_cmpint(choice_of(&costs.kinds[COSTS_ANONYMOUS], &facts), !=,
                    POLICY_SPLIT);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    for (const Case *c = cases; c < cases + G_N_ELEMENTS(cases); c++) {
        g_autofree char *path = g_strdup_printf(
            "/policy/%s/%s/%s/%s", c->host, costs_kind_name(c->kind),
            objectives[c->objective], scenes[c->scene].name);

        g_test_add_data_func(path, c, test_decision);
    }
    g_test_add_func("/policy/estimates", test_estimates);
    g_test_add_func("/policy/experience", test_experience);
    g_test_add_func("/policy/equals", test_equals);
    g_test_add_func("/policy/next-to-nothing", test_next_to_nothing);
    g_test_add_func("/policy/no-split-by-guess", test_no_split_by_guess);
    return g_test_run();
}
