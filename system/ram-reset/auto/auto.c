/*
 * ram-reset-auto: choose the cheapest strategy
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qapi/error.h"
#include "qapi/util.h"
#include "qemu/timer.h"
#include "qom/object_interfaces.h"
#include "system/ram-reset-flags.h"
#include "system/ram-reset/auto/plan.h"
#include "system/ram-reset/measure/guest.h"
#include "system/ram-reset/measure/memory.h"
#include "system/ram-reset/report.h"
#include "system/ram-reset/trace.h"

OBJECT_DECLARE_SIMPLE_TYPE(RamResetAuto, RAM_RESET_AUTO)

#define PAGE_SIZE 4096

/*
 * An estimate that is wrong by this factor, or by less than this time, is not
 * traced
 */
#define MISJUDGED_FACTOR 2
#define MISJUDGED_NS     200000

/*
 * A load shorter than this teaches nothing: all strategies take about the same
 * time, and the host's other work disturbs it.
 */
#define WORTH_LEARNING_NS 1000000

/**
 * RamResetAuto: an instance
 *
 * @costs_file: file to read @costs from; NULL to measure them
 * @guest: the result of measure_guest()
 * @calibration_ns: duration of all measurements
 * @tried: kinds of memory whose costs are known, or cannot be measured
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

/* Knowledge about a block, from load to load */
typedef struct RamResetKnown {
    History *history;
    double slower[POLICY_NR_CHOICES];   /* factor to the calibrated costs */
    /* of the current load, or of the last one */
    AutoPlan plan;
    uint64_t planning_ns;
} RamResetKnown;

static CostsKind kind_of(bool shared, size_t page_size)
{
    return page_size > qemu_real_host_page_size() ? COSTS_HUGETLB :
           shared ? COSTS_SHARED : COSTS_ANONYMOUS;
}

/* The host unmaps a granule at a time from the guest */
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
 * QEMU calls this for all existing blocks, and then for each hotplugged one,
 * before it is known whether the object will cover the block.  Never delay a
 * load for that.
 */
static void auto_block_added(RAMBlockNotifier *n, void *host, size_t size,
                             size_t max_size)
{
    RamResetAuto *ra = container_of(n, RamResetAuto, notifier);
    const char *memdev = RAM_RESET(ra)->memdev;
    RAMBlock *rb;
    ram_addr_t offset;

    if (ram_reset_flags.running) {
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

    /* Loads that map templates may never need costs */
    if (!ra->costs_file && !rr->template_dir) {
        ra->notifier.ram_block_added = auto_block_added;
        ram_block_notifier_add(&ra->notifier);
    }
}

/* Read costs once: they must not change between two loads */
static bool auto_check(RamReset *rr, Error **errp)
{
    RamResetAuto *ra = RAM_RESET_AUTO(rr);
    Error *err = NULL;

    if (!ra->costs_file || ra->ready) {
        return true;
    }
    if (!costs_read(ra->costs_file, &ra->costs, &err)) {
        ram_reset_error(rr, errp, "cannot use costs '%s': %s", ra->costs_file,
                        error_get_pretty(err));
        error_free(err);
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

    known->history = history_new(blk);
    for (PolicyChoice c = 0; c < POLICY_NR_CHOICES; c++) {
        known->slower[c] = 1;
    }
    return known;
}

static void known_free(gpointer opaque)
{
    RamResetKnown *known = opaque;

    history_free(known->history);
    g_free(known);
}

/* A block whose size has changed is a new one */
static RamResetKnown *auto_find_known(RamResetAuto *ra,
                                      const RamResetBlock *blk)
{
    RamResetKnown *known = g_hash_table_lookup(ra->blocks, blk->info->name);

    if (!known || !history_fits(known->history, blk)) {
        known = known_new(blk);
        g_hash_table_replace(ra->blocks, g_strdup(blk->info->name), known);
    }
    return known;
}

/* The costs for the memory of @blk; false if they are not known */
static bool costs_of(const RamResetAuto *ra, const RamResetBlock *blk,
                     const RamResetKnown *known, MemoryCosts *costs)
{
    CostsKind kind = kind_of(blk->map.shared, blk->map.page_size);

    *costs = ra->costs.kinds[kind];
    if (ra->costs.known[kind] && kind == COSTS_HUGETLB) {
        *costs = costs_for_granule(costs, blk->map.page_size / PAGE_SIZE);
    }
    /* Costs given by the user stay as they are */
    if (!ra->costs_file) {
        *costs = policy_experienced(costs, known->slower);
    }
    return ra->costs.known[kind];
}

static void auto_plan(RamReset *rr, RamResetBlock *blk)
{
    RamResetAuto *ra = RAM_RESET_AUTO(rr);
    RamResetKnown *known = auto_find_known(ra, blk);
    int64_t before = get_clock();
    MemoryCosts costs;

    if (!ra->costs_file && rr->template_dir) {
        calibrate_kind(ra, kind_of(blk->map.shared, blk->map.page_size));
    }
    if (costs_of(ra, blk, known, &costs)) {
        known->plan = auto_plan_cheapest(rr, blk, ra->objective, &costs,
                                         known->history);
    } else {
        auto_plan_without_costs(rr, blk);
    }
    known->planning_ns = get_clock() - before;
}

static void compare_times(RamResetKnown *known, const RamResetBlock *blk)
{
    double measured = blk->info->reset_ns - known->planning_ns;
    double ratio = measured / known->plan.estimated_ns;

    if (MAX(measured, known->plan.estimated_ns) < MISJUDGED_NS) {
        return;
    }
    if (ratio > MISJUDGED_FACTOR || ratio < 1.0 / MISJUDGED_FACTOR) {
        trace_ram_reset_misjudged(blk->info->name, blk->info->strategy,
                                  known->plan.estimated_ns, measured);
    }
    /*
     * The time of a split does not show which half was slow.  The time of a
     * remap that populates the fresh memory does not show whether remapping or
     * populating was slow.
     */
    if (MAX(measured, known->plan.estimated_ns) >= WORTH_LEARNING_NS &&
        known->plan.choice != POLICY_SPLIT &&
        (known->plan.choice != POLICY_REMAP ||
         !ram_reset_block_is_preallocated(blk))) {
        for (PolicyChoice c = 0; c < POLICY_NR_CHOICES; c++) {
            if (policy_learn_together(c, known->plan.choice)) {
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
        history_learn(known->history, blk, known->plan.granule,
                      known->plan.keeps);
    }
    for (PolicyChoice c = 0; c < POLICY_NR_CHOICES; c++) {
        if (!policy_learn_together(c, known->plan.choice)) {
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
        "What to minimise: the load and the guest's faults after it (total), "
        "the load (latency), or the memory in use after it (footprint)");
    object_class_property_add_str(oc, "costs", auto_get_costs, auto_set_costs);
    object_class_property_set_description(oc, "costs",
        "File with the costs on this host; measured if not given");
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
