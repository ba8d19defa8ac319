/*
 * ram-reset-auto: plan how one block is made zero in one load
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qapi/error.h"
#include "qapi/util.h"
#include "system/ram-reset/auto/plan.h"
#include "system/ram-reset/block/find-data.h"
#include "system/ram-reset/options.h"
#include "system/ram-reset/prim/ranges.h"
#include "system/ram-reset/reset.h"

#define PAGE_SIZE 4096

/* The strategies that auto delegates to; a split uses the first two */
static const char *const strategies[] = {
    [POLICY_CLEAR] = TYPE_RAM_RESET_MEMSET,
    [POLICY_DISCARD] = TYPE_RAM_RESET_MADVISE,
    [POLICY_REMAP] = TYPE_RAM_RESET_REMAP,
};

static const char *choice_name(PolicyChoice choice)
{
    return choice == POLICY_SPLIT
           ? "split" : strategies[choice] + strlen(TYPE_RAM_RESET "-");
}

static RamResetClass *plan_class(PolicyChoice choice)
{
    return ram_reset_class(strategies[choice]);
}

/*
 * The reason why @choice cannot be used for @blk, to be freed; NULL if it can
 */
static char *plan_refusal(RamReset *rr, const RamResetBlock *blk,
                          PolicyChoice choice)
{
    Error *err = NULL;
    char *reason;

    if (plan_class(choice)->supports(rr, blk, &err)) {
        return NULL;
    }
    reason = g_strdup(error_get_pretty(err));
    error_free(err);
    return reason;
}

static void plan_describe_sums(RamResetDecision *info, const PolicyFacts *facts)
{
    for (size_t i = 0; i < facts->nr_chunks; i++) {
        info->resident += (uint64_t)facts->chunks[i].resident * PAGE_SIZE;
        info->stored += (uint64_t)facts->chunks[i].stored * PAGE_SIZE;
        info->again += (uint64_t)facts->chunks[i].again * PAGE_SIZE;
    }
}

/* Take ownership of the strings in @refusals */
static RamResetDecision *plan_describe(const PolicyDecision *decision,
                                       const PolicyFacts *facts,
                                       char **refusals)
{
    RamResetDecision *info = g_new0(RamResetDecision, 1);
    RamResetCandidateList **tail = &info->candidates;

    for (PolicyChoice c = 0; c < POLICY_NR_CHOICES; c++) {
        const PolicyEstimate *e = &decision->estimates[c];
        RamResetCandidate *candidate;

        if (!e->possible && !refusals[c]) {
            continue;
        }
        candidate = g_new0(RamResetCandidate, 1);
        candidate->strategy = g_strdup(choice_name(c));
        candidate->refused = g_steal_pointer(&refusals[c]);
        if (e->possible) {
            candidate->reset = e->reset;
            candidate->load = e->load;
            candidate->guest = e->guest;
            candidate->owed = e->owed;
            candidate->resident = e->resident * PAGE_SIZE;
        }
        QAPI_LIST_APPEND(tail, candidate);
    }
    plan_describe_sums(info, facts);
    return info;
}

static void plan_add_part(RamResetBlock *blk, uint64_t start, uint64_t end,
                          PolicyChoice choice)
{
    ram_reset_add_part(blk, start, end - start, plan_class(choice));
}

/* The parts of @data in chunks that are not discarded; frees @data */
static GArray *without_discarded(GArray *data, uint64_t chunk,
                                 const bool *discard)
{
    GArray *left = prim_ranges_new();

    for (unsigned i = 0; i < data->len; i++) {
        PrimRange range = g_array_index(data, PrimRange, i);

        while (range.len) {
            PrimRange piece = prim_range_cut(&range, chunk);

            if (!discard[piece.start / chunk]) {
                g_array_append_val(left, piece);
            }
        }
    }
    g_array_unref(data);
    return left;
}

/*
 * First discard chunks.  Then clear the rest in one go, which waits for the
 * snapshot's own pages as any clearing does.  Returns the number of bytes to be
 * discarded.
 */
static uint64_t plan_split(RamResetBlock *blk, size_t nr_chunks, uint64_t chunk,
                           const bool *discard)
{
    uint64_t discarded = 0;
    size_t from, to;

    for (from = 0; from < nr_chunks; from = to) {
        uint64_t start = from * chunk, end;

        to = from + 1;
        while (to < nr_chunks && discard[to] == discard[from]) {
            to++;
        }
        end = MIN(to * chunk, blk->map.len);
        if (discard[from]) {
            plan_add_part(blk, start, end, POLICY_DISCARD);
            discarded += end - start;
        }
    }
    plan_add_part(blk, 0, blk->map.len, POLICY_CLEAR);
    if (blk->data) {
        blk->data = without_discarded(blk->data, chunk, discard);
    }
    return discarded;
}

/*
 * Find the populated ranges.  If they are certain, and nobody else has the
 * memory (@exclusive), clearing uses them as well.
 */
static GArray *find_populated(RamResetBlock *blk, bool exclusive)
{
    bool certain;
    GArray *data = ram_reset_find_data(blk, 0, blk->map.len, &certain);

    if (!certain) {
        g_array_unref(data);
        return ram_reset_guess_populated(blk);
    }
    if (exclusive) {
        blk->data = g_array_ref(data);
    }
    return data;
}

static AutoPlan plan_decide(RamReset *rr, RamResetBlock *blk,
                            RamResetObjective objective,
                            const MemoryCosts *costs, const History *history,
                            char **refusals)
{
    size_t nr;
    uint64_t chunk;
    const PolicyChunk *chunks = history_chunks(history, &nr, &chunk);
    PolicyFacts facts = {
        .objective = (PolicyObjective)objective,
        .chunks = chunks,
        .nr_chunks = nr,
        .chunk_pages = chunk / PAGE_SIZE,
        .threads = ram_reset_threads(rr),
        .prealloc = ram_reset_block_is_preallocated(blk),
        .can_discard = !refusals[POLICY_DISCARD],
        .can_remap = !refusals[POLICY_REMAP],
        .can_split = history_is_learnt(history),
    };
    g_autofree bool *discard = g_new0(bool, nr);
    PolicyDecision decision = policy_decide(costs, &facts, discard);

    blk->info->decision = plan_describe(&decision, &facts, refusals);
    if (decision.choice == POLICY_SPLIT) {
        blk->info->decision->discarded = plan_split(blk, nr, chunk, discard);
    } else {
        plan_add_part(blk, 0, blk->map.len, decision.choice);
    }
    blk->cleared = g_new0(uint32_t, nr * (chunk / RAM_RESET_CHUNK));
    return (AutoPlan) {
        .choice = decision.choice,
        .estimated_ns = decision.estimates[decision.choice].reset,
        .granule = costs->granule,
        .keeps = !facts.can_discard && !facts.can_remap,
    };
}

AutoPlan auto_plan_cheapest(RamReset *rr, RamResetBlock *blk,
                            RamResetObjective objective,
                            const MemoryCosts *costs, History *history)
{
    char *refusals[POLICY_NR_CHOICES] = {
        [POLICY_DISCARD] = plan_refusal(rr, blk, POLICY_DISCARD),
        [POLICY_REMAP] = plan_refusal(rr, blk, POLICY_REMAP),
    };
    g_autoptr(GArray) populated = find_populated(
        blk, !blk->map.shared || !refusals[POLICY_REMAP]);
    AutoPlan plan;

    history_update(history, populated, blk->expected);
    plan = plan_decide(rr, blk, objective, costs, history, refusals);
    blk->info->strategy = g_strdup(choice_name(plan.choice));
    blk->info->reason = g_strdup_printf("the cheapest for '%s', by '%s'",
                                        RamResetObjective_str(objective),
                                        ram_reset_id(rr));
    return plan;
}

void auto_plan_without_costs(RamReset *rr, RamResetBlock *blk)
{
    g_autofree char *refused = plan_refusal(rr, blk, POLICY_DISCARD);

    blk->info->strategy = g_strdup(choice_name(POLICY_CLEAR));
    blk->info->reason = g_strdup_printf(
        "this is always possible; others: %s",
        refused ?: "what this kind of memory costs is not known");
    plan_add_part(blk, 0, blk->map.len, POLICY_CLEAR);
}
