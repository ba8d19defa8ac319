/*
 * ram-reset-auto: whichever strategy is the cheapest
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qapi/error.h"
#include "qapi/util.h"
#include "qemu/timer.h"
#include "qom/object_interfaces.h"
#include "system/ram-reset/block/find-data.h"
#include "system/ram-reset/measure/guest.h"
#include "system/ram-reset/measure/memory.h"
#include "facts.h"
#include "trace.h"

OBJECT_DECLARE_SIMPLE_TYPE(RamResetAuto, RAM_RESET_AUTO)

#define PAGE_SIZE 4096

/* By what factor an estimate may be wrong unnoticed, and from when on */
#define MISJUDGED_FACTOR 2
#define MISJUDGED_NS     200000

/*
 * What takes less is much the same by any strategy, and how long it took says
 * more of what else the host did
 */
#define WORTH_LEARNING_NS 1000000

/**
 * RamResetAuto: an instance
 *
 * @costs_file: where to read @costs from; NULL to measure them
 * @guest: what measure_guest() has found
 * @calibration_ns: how long it took to measure all of that
 * @tried: kinds of memory whose costs are known, or cannot be
 * @blocks: RamResetKnown by the name of the RAM block
 */
struct RamResetAuto {
    RamReset parent;

    RamResetObjective objective;
    char *costs_file;
    HostCosts costs;
    GuestCosts guest;
    uint64_t calibration_ns;
    bool ready, tried[COSTS_NR_KINDS];
    RAMBlockNotifier notifier;
    GHashTable *blocks;
};

/* What is remembered of a block from load to load */
typedef struct RamResetKnown {
    Facts *facts;
    uint32_t granule;           /* pages */
    bool keeps;                 /* nothing of it can be discarded */
    double slower[POLICY_NR_CHOICES];   /* than calibrated, in past loads */
    /* of the load under way, or the last one */
    PolicyChoice choice;
    double estimated_ns;
    uint64_t planning_ns;
} RamResetKnown;

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

static CostsKind kind_of(bool shared, size_t page_size)
{
    return page_size > qemu_real_host_page_size() ? COSTS_HUGETLB :
           shared ? COSTS_SHARED : COSTS_ANONYMOUS;
}

/* What the guest has mapped is lost granule by granule */
static void add_guest(const RamResetAuto *ra, MemoryCosts *costs)
{
    costs->guest_fault = ra->guest.fault;
    costs->guest_map = ra->guest.map;
    costs->discard += ra->guest.unmap / costs->granule;
    costs->remap += ra->guest.unmap / costs->granule;
}

static void calibrate_kind(RamResetAuto *ra, CostsKind kind)
{
    int64_t before = get_clock();
    MemoryCosts *costs = &ra->costs.kinds[kind];

    if (ra->tried[kind]) {
        return;
    }
    ra->tried[kind] = true;
    if (!ra->calibration_ns) {
        ra->guest = measure_guest();
    }
    ra->costs.known[kind] = measure_memory(kind, costs);
    add_guest(ra, costs);
    ra->calibration_ns += get_clock() - before;
    trace_ram_reset_calibrated(costs_kind_name(kind), ra->costs.known[kind],
                               ra->calibration_ns);
}

/*
 * Blocks that are there, and then those that are plugged, before anybody can
 * tell whether the object will claim them; never in a load
 */
static void auto_block_added(RAMBlockNotifier *n, void *host, size_t size,
                             size_t max_size)
{
    RamResetAuto *ra = container_of(n, RamResetAuto, notifier);
    const char *memdev = RAM_RESET(ra)->memdev;
    RAMBlock *rb;
    ram_addr_t offset;

    if (ram_reset_running) {
        return;
    }
    RCU_READ_LOCK_GUARD();
    rb = qemu_ram_block_from_host(host, false, &offset);
    if (rb && (!memdev || !g_strcmp0(memdev, ram_reset_block_memdev(rb)))) {
        calibrate_kind(ra, kind_of(qemu_ram_is_shared(rb), rb->page_size));
    }
}

static void auto_machine_ready(RamReset *rr)
{
    RamResetAuto *ra = RAM_RESET_AUTO(rr);

    /* Where templates are mapped they may never be needed */
    if (!ra->costs_file && !rr->template_dir) {
        ra->notifier.ram_block_added = auto_block_added;
        ram_block_notifier_add(&ra->notifier);
    }
}

/* Once: what they say must not change between two loads */
static bool auto_check(RamReset *rr, Error **errp)
{
    RamResetAuto *ra = RAM_RESET_AUTO(rr);
    g_autofree char *reason = NULL;

    if (!ra->costs_file || ra->ready) {
        return true;
    }
    reason = costs_read(ra->costs_file, &ra->costs);
    if (reason) {
        error_setg(errp, "%s '%s': cannot use costs '%s': %s",
                   TYPE_RAM_RESET_AUTO, ram_reset_id(rr), ra->costs_file,
                   reason);
        return false;
    }
    ra->ready = true;
    return true;
}

static bool auto_supports(RamReset *rr, const RamResetBlock *blk, Error **errp)
{
    return true;
}

static RamResetKnown *known_new(const RamResetBlock *blk)
{
    RamResetKnown *known = g_new0(RamResetKnown, 1);

    known->facts = facts_new(blk);
    for (PolicyChoice c = 0; c < POLICY_NR_CHOICES; c++) {
        known->slower[c] = 1;
    }
    return known;
}

static void known_free(gpointer opaque)
{
    RamResetKnown *known = opaque;

    facts_free(known->facts);
    g_free(known);
}

/* Of a block of another size nothing is known any more */
static RamResetKnown *lookup(RamResetAuto *ra, const RamResetBlock *blk)
{
    RamResetKnown *known = g_hash_table_lookup(ra->blocks, blk->info->name);

    if (!known || !facts_fit(known->facts, blk)) {
        known = known_new(blk);
        g_hash_table_replace(ra->blocks, g_strdup(blk->info->name), known);
    }
    return known;
}

/* Why @choice cannot serve @blk, to be freed; NULL if it can */
static char *refusal(RamReset *rr, const RamResetBlock *blk,
                     PolicyChoice choice)
{
    Error *err = NULL;
    char *reason;

    if (ram_reset_class(strategies[choice])->supports(rr, blk, &err)) {
        return NULL;
    }
    reason = g_strdup(error_get_pretty(err));
    error_free(err);
    return reason;
}

static void tell_sums(RamResetDecision *info, const PolicyFacts *facts)
{
    for (size_t i = 0; i < facts->nr_chunks; i++) {
        info->resident += (uint64_t)facts->chunks[i].resident * PAGE_SIZE;
        info->stored += (uint64_t)facts->chunks[i].stored * PAGE_SIZE;
        info->again += (uint64_t)facts->chunks[i].again * PAGE_SIZE;
    }
}

static RamResetDecision *tell(const PolicyDecision *decision,
                              const PolicyFacts *facts, char **refusals)
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
    tell_sums(info, facts);
    return info;
}

/* What of @data, which is freed, lies in chunks that are not discarded */
static GArray *without_discarded(GArray *data, uint64_t chunk, const bool *discard)
{
    GArray *left = g_array_new(false, false, sizeof(PrimRange));

    for (unsigned i = 0; i < data->len; i++) {
        PrimRange range = g_array_index(data, PrimRange, i), piece;

        for (; range.len; range.start += piece.len, range.len -= piece.len) {
            piece.start = range.start;
            piece.len = MIN(range.len, chunk - range.start % chunk);
            if (!discard[piece.start / chunk]) {
                g_array_append_val(left, piece);
            }
        }
    }
    g_array_unref(data);
    return left;
}

/*
 * Chunks are discarded, and then all that is left is cleared in one go; what the
 * snapshot stores it is told of.  Returns how many bytes are to be discarded.
 */
static uint64_t split(RamResetBlock *blk, const PolicyFacts *facts,
                      uint64_t chunk, const bool *discard)
{
    uint64_t discarded = 0;
    size_t from, to;

    for (from = 0; from < facts->nr_chunks; from = to) {
        uint64_t start = from * chunk, end;

        for (to = from + 1; to < facts->nr_chunks && discard[to] == discard[from];) {
            to++;
        }
        end = MIN(to * chunk, blk->map.len);
        if (discard[from]) {
            ram_reset_add_part(blk, start, end - start,
                               ram_reset_class(strategies[POLICY_DISCARD]));
            discarded += end - start;
        }
    }
    ram_reset_add_part(blk, 0, blk->map.len,
                       ram_reset_class(strategies[POLICY_CLEAR]));
    if (blk->data) {
        blk->data = without_discarded(blk->data, chunk, discard);
    }
    return discarded;
}

static void carry_out(RamResetBlock *blk, const PolicyFacts *facts,
                      PolicyChoice choice, uint64_t chunk, const bool *discard)
{
    if (choice == POLICY_SPLIT) {
        blk->info->decision->discarded = split(blk, facts, chunk, discard);
    } else {
        ram_reset_add_part(blk, 0, blk->map.len,
                           ram_reset_class(strategies[choice]));
    }
    blk->info->strategy = g_strdup(choice_name(choice));
    blk->cleared = g_new0(uint32_t, facts->nr_chunks *
                                    (chunk / RAM_RESET_CHUNK));
}

/* Without estimates */
static void clear_instead(RamResetBlock *blk, const char *why)
{
    blk->info->strategy = g_strdup(choice_name(POLICY_CLEAR));
    blk->info->reason = g_strdup_printf("this is always possible; others: %s",
                                        why);
    ram_reset_add_part(blk, 0, blk->map.len,
                       ram_reset_class(strategies[POLICY_CLEAR]));
}

/* The costs for the memory that @blk is in; false if they are not known */
static bool costs_of(const RamResetAuto *ra, const RamResetBlock *blk,
                     MemoryCosts *costs)
{
    CostsKind kind = kind_of(blk->map.shared, blk->map.page_size);

    *costs = ra->costs.kinds[kind];
    if (ra->costs.known[kind] && kind == COSTS_HUGETLB) {
        *costs = costs_for_granule(costs, blk->map.page_size / PAGE_SIZE);
    }
    return ra->costs.known[kind];
}

static void decide(RamResetAuto *ra, RamResetBlock *blk, RamResetKnown *known,
                   const MemoryCosts *costs, char **refusals)
{
    g_autofree bool *discard = NULL;
    PolicyDecision decision;
    size_t nr_chunks;
    uint64_t chunk;
    const PolicyChunk *chunks = facts_chunks(known->facts, &nr_chunks, &chunk);
    PolicyFacts facts = {
        .objective = (PolicyObjective)ra->objective,
        .chunks = chunks,
        .nr_chunks = nr_chunks,
        .chunk_pages = chunk / PAGE_SIZE,
        .threads = ram_reset_threads(RAM_RESET(ra)),
        .prealloc = ram_reset_block_is_preallocated(blk),
        .can_discard = !refusals[POLICY_DISCARD],
        .can_remap = !refusals[POLICY_REMAP],
        .can_split = facts_are_learnt(known->facts),
    };

    discard = g_new0(bool, nr_chunks);
    decision = policy_decide(costs, &facts, discard);
    blk->info->decision = tell(&decision, &facts, refusals);
    blk->info->reason = g_strdup_printf("the cheapest for '%s', by '%s'",
                                        RamResetObjective_str(ra->objective),
                                        ram_reset_id(RAM_RESET(ra)));
    carry_out(blk, &facts, decision.choice, chunk, discard);
    known->granule = costs->granule;
    known->keeps = !facts.can_discard && !facts.can_remap;
    known->choice = decision.choice;
    known->estimated_ns = decision.estimates[decision.choice].reset;
}

/*
 * What is populated, for the facts.  Where it is certain, and nobody else has
 * the memory (@exclusive), clearing goes by it as well.
 */
static GArray *find_populated(RamResetBlock *blk, bool exclusive)
{
    bool told;
    GArray *data = ram_reset_find_data(blk, 0, blk->map.len, &told);

    if (!told) {
        g_array_unref(data);
        return ram_reset_guess_populated(blk);
    }
    if (exclusive) {
        blk->data = g_array_ref(data);
    }
    return data;
}

static void auto_plan(RamReset *rr, RamResetBlock *blk)
{
    RamResetAuto *ra = RAM_RESET_AUTO(rr);
    RamResetKnown *known = lookup(ra, blk);
    int64_t before = get_clock();
    char *refusals[POLICY_NR_CHOICES] = {
        [POLICY_DISCARD] = refusal(rr, blk, POLICY_DISCARD),
        [POLICY_REMAP] = refusal(rr, blk, POLICY_REMAP),
    };
    MemoryCosts costs;

    if (!ra->costs_file && rr->template_dir) {
        calibrate_kind(ra, kind_of(blk->map.shared, blk->map.page_size));
    }
    if (!costs_of(ra, blk, &costs)) {
        clear_instead(blk, refusals[POLICY_DISCARD] ?:
                      "what this kind of memory costs is not known");
    } else {
        g_autoptr(GArray) populated = find_populated(
            blk, !blk->map.shared || !refusals[POLICY_REMAP]);

        /* What is given stays as it is */
        if (!ra->costs_file) {
            costs = policy_experienced(&costs, known->slower);
        }
        facts_update(known->facts, populated, blk->expected);
        decide(ra, blk, known, &costs, refusals);
    }
    for (PolicyChoice c = 0; c < POLICY_NR_CHOICES; c++) {
        g_free(refusals[c]);
    }
    known->planning_ns = get_clock() - before;
}

static void compare_times(RamResetKnown *known, const RamResetBlock *blk)
{
    double measured = blk->info->reset_ns - known->planning_ns;
    double ratio = measured / known->estimated_ns;

    if (MAX(measured, known->estimated_ns) < MISJUDGED_NS) {
        return;
    }
    if (ratio > MISJUDGED_FACTOR || ratio < 1.0 / MISJUDGED_FACTOR) {
        trace_ram_reset_misjudged(blk->info->name, blk->info->strategy,
                                  known->estimated_ns, measured);
    }
    /*
     * How long a split takes does not tell which half of it was slow, nor a
     * remap that populates the fresh memory, whether it was that.
     */
    if (MAX(measured, known->estimated_ns) >= WORTH_LEARNING_NS &&
        known->choice != POLICY_SPLIT &&
        (known->choice != POLICY_REMAP ||
         !ram_reset_block_is_preallocated(blk))) {
        for (PolicyChoice c = 0; c < POLICY_NR_CHOICES; c++) {
            if (policy_learn_together(c, known->choice)) {
                known->slower[c] = policy_slower(known->slower[c], ratio);
            }
        }
    }
}

static void auto_loaded(RamReset *rr, const RamResetBlock *blk)
{
    RamResetKnown *known = g_hash_table_lookup(RAM_RESET_AUTO(rr)->blocks,
                                               blk->info->name);

    if (!blk->info->decision) {
        return;
    }
    if (blk->known) {
        facts_learn(known->facts, blk, known->granule, known->keeps);
    }
    for (PolicyChoice c = 0; c < POLICY_NR_CHOICES; c++) {
        if (!policy_learn_together(c, known->choice)) {
            known->slower[c] = policy_slower_unused(known->slower[c]);
        }
    }
    if (!blk->info->fallback) {
        compare_times(known, blk);
    }
}

static void auto_query(RamReset *rr, RamResetObjectInfo *obj)
{
    RamResetAuto *ra = RAM_RESET_AUTO(rr);
    RamResetAutoInfo *info = obj->q_auto = g_new0(RamResetAutoInfo, 1);
    RamResetCostsList **tail = &info->costs;

    info->objective = ra->objective;
    info->calibration_ns = ra->calibration_ns;
    for (CostsKind kind = 0; kind < COSTS_NR_KINDS; kind++) {
        const MemoryCosts *from = &ra->costs.kinds[kind];
        RamResetCosts *costs;

        if (!ra->costs.known[kind]) {
            continue;
        }
        costs = g_new0(RamResetCosts, 1);
        costs->kind = g_strdup(costs_kind_name(kind));
        costs->granule = (uint64_t)from->granule * PAGE_SIZE;
        costs->test = from->test;
        costs->clear = from->clear;
        costs->discard_call = from->discard_call;
        costs->discard = from->discard;
        costs->remap_call = from->remap_call;
        costs->remap = from->remap;
        costs->fault = from->fault;
        costs->guest_fault = from->guest_fault;
        costs->guest_map = from->guest_map;
        QAPI_LIST_APPEND(tail, costs);
    }
}

static int auto_get_objective(Object *obj, Error **errp)
{
    return RAM_RESET_AUTO(obj)->objective;
}

static void auto_set_objective(Object *obj, int value, Error **errp)
{
    RAM_RESET_AUTO(obj)->objective = value;
}

static char *auto_get_costs(Object *obj, Error **errp)
{
    return g_strdup(RAM_RESET_AUTO(obj)->costs_file);
}

static void auto_set_costs(Object *obj, const char *value, Error **errp)
{
    RamResetAuto *ra = RAM_RESET_AUTO(obj);

    if (RAM_RESET(obj)->completed) {
        error_setg(errp, "cannot change property 'costs' of %s '%s'",
                   TYPE_RAM_RESET_AUTO, ram_reset_id(RAM_RESET(obj)));
        return;
    }
    g_free(ra->costs_file);
    ra->costs_file = g_strdup(value);
}

static void auto_init(Object *obj)
{
    RAM_RESET_AUTO(obj)->blocks = g_hash_table_new_full(g_str_hash, g_str_equal,
                                                        g_free, known_free);
}

static void auto_finalize(Object *obj)
{
    RamResetAuto *ra = RAM_RESET_AUTO(obj);

    if (ra->notifier.ram_block_added) {
        ram_block_notifier_remove(&ra->notifier);
    }
    g_hash_table_unref(ra->blocks);
    g_free(ra->costs_file);
}

static void auto_class_init(ObjectClass *oc, RamResetClassData *data)
{
    RamResetClass *rrc = RAM_RESET_CLASS(oc);

    rrc->check = auto_check;
    rrc->machine_ready = auto_machine_ready;
    rrc->query = auto_query;
    rrc->supports = auto_supports;
    rrc->plan = auto_plan;
    rrc->loaded = auto_loaded;

    object_class_property_add_enum(oc, "objective", "RamResetObjective",
                                   &RamResetObjective_lookup,
                                   auto_get_objective, auto_set_objective);
    object_class_property_set_description(oc, "objective",
        "What to make small: the load and the guest's faults after it (total), "
        "the load (latency), or the memory in use after it (footprint)");
    object_class_property_add_str(oc, "costs", auto_get_costs, auto_set_costs);
    object_class_property_set_description(oc, "costs",
        "File that says what things cost on this host; measured if not given");
}

static const TypeInfo auto_types[] = {
    {
        .name = TYPE_RAM_RESET_AUTO,
        .parent = TYPE_RAM_RESET,
        .instance_size = sizeof(RamResetAuto),
        .instance_init = auto_init,
        .instance_finalize = auto_finalize,
        .class_init = auto_class_init,
    },
};

DEFINE_TYPES(auto_types)
