/*
 * RAM reset: the course of one reset
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qapi/error.h"
#include "qapi/util.h"
#include "qemu/main-loop.h"
#include "qemu/timer.h"
#include "system/ram-reset/block-list.h"
#include "system/ram-reset/block/block.h"
#include "system/ram-reset/block/clear.h"
#include "system/ram-reset/block/overlay.h"
#include "system/ram-reset/options.h"
#include "system/ram-reset/report.h"
#include "system/ram-reset/reset.h"
#include "system/ram-reset-load.h"
#include "system/ram-reset/trace.h"

/*
 * The strategy that query-ram-reset reports for clearing in place, whichever
 * object requests it
 */
#define IN_PLACE "memset"

/* Protected by the BQL */
static struct {
    RamResetBlockList *list;    /* of the current reset, or NULL */
    unsigned last;              /* where the last search ended */
    bool all_notified;          /* of all pages that are loaded */
    uint64_t fallbacks;
} reset;

static int64_t reset_now(void)
{
    return get_clock();
}

/* The name of the strategy of a part */
static const char *strategy_name(RamResetClass *rrc)
{
    return rrc ? ram_reset_strategy_name(rrc) : IN_PLACE;
}

void ram_reset_add_part(RamResetBlock *blk, uint64_t start, uint64_t len,
                        RamResetClass *strategy)
{
    RamResetPart part = { .start = start, .len = len, .strategy = strategy };

    g_array_append_val(blk->parts, part);
}

static void plan_strategy(RamResetBlock *blk)
{
    RamReset *rr = blk->owner;
    RamResetClass *strategy = RAM_RESET_GET_CLASS(rr);
    Error *err = NULL;

    blk->parts = g_array_new(false, false, sizeof(RamResetPart));
    if (!strategy->supports(rr, blk, &err)) {
        blk->info->reason = g_strdup_printf("%s refused: %s",
                                            strategy_name(strategy),
                                            error_get_pretty(err));
        error_free(err);
        strategy = NULL;
    } else if (strategy->plan) {
        strategy->plan(rr, blk);
    } else {
        blk->info->reason = g_strdup_printf("asked for by '%s'",
                                            blk->info->object);
    }
    if (!blk->info->strategy) {
        ram_reset_add_part(blk, 0, blk->map.len, strategy);
        blk->info->strategy = g_strdup(strategy_name(strategy));
    }
    trace_ram_reset_plan(blk->info->name, blk->info->strategy,
                         blk->info->reason);
}

static void plan_block(RamResetBlock *blk, bool left_out, uint64_t expected)
{
    const char *refusal = left_out
                          ? "not part of the snapshot (x-ignore-shared)"
                          : ram_reset_block_refusal(blk->rb);
    int64_t before;

    blk->expected = expected;
    if (!refusal && !blk->owner) {
        refusal = "no ram-reset object names its memory backend";
    }
    if (refusal) {
        blk->owner = NULL;
        blk->info->reason = g_strdup(refusal);
        return;
    }
    blk->info->object = g_strdup(ram_reset_id(blk->owner));
    if (blk->map.len) {
        before = reset_now();
        plan_strategy(blk);
        blk->info->reset_ns = reset_now() - before;
    }
}

void ram_reset_begin_unplanned(void)
{
    assert(!ram_reset_blocks_are_listed());
    reset.list = ram_reset_list_blocks();
    for (unsigned i = 0; i < reset.list->nr; i++) {
        RamResetBlock *blk = &reset.list->blocks[i];

        if (blk->owner && !ram_reset_block_refusal(blk->rb)) {
            blk->info->object = g_strdup(ram_reset_id(blk->owner));
        }
    }
}

void ram_reset_note_fallback(RamResetBlock *blk, const char *failed, int ret)
{
    RamReset *rr = blk->owner;

    if (!rr->warned) {
        rr->warned = true;
        ram_reset_warn(rr, "could not reset RAM block '%s' by %s: %s; "
                       "clearing it in place (later ones are only counted, "
                       "see query-ram-reset)", blk->info->name, failed,
                       strerror(-ret));
    }
    trace_ram_reset_fallback(blk->info->name, failed, ret);
    reset.fallbacks++;
    blk->info->fallback = true;
    g_free(blk->info->reason);
    blk->info->reason = g_strdup_printf("%s failed: %s", failed,
                                        strerror(-ret));
}

static void fall_back(RamResetBlock *blk, RamResetPart *part, int ret)
{
    ram_reset_note_fallback(blk, strategy_name(part->strategy), ret);
    part->strategy = NULL;
    /*
     * Some of it may be discarded already, and reading would populate it again
     */
    g_clear_pointer(&blk->data, g_array_unref);
    if (blk->parts->len == 1) {
        g_free(blk->info->strategy);
        blk->info->strategy = g_strdup(IN_PLACE);
    }
}

/* Use the strategy of @part; drop the strategy if it fails */
static void try_strategy(RamResetBlock *blk, RamResetPart *part)
{
    uint64_t zeroed = blk->info->zeroed_bytes;
    uint64_t discarded = blk->info->discarded_pages;
    int ret = part->strategy->zero(blk->owner, blk, part->start, part->len);

    if (ret < 0) {
        blk->info->zeroed_bytes = zeroed;
        blk->info->discarded_pages = discarded;
        fall_back(blk, part, ret);
    }
}

static void zero_part(RamResetBlock *blk, RamResetPart *part)
{
    uint64_t zeroed = blk->info->zeroed_bytes;

    if (part->strategy) {
        try_strategy(blk, part);
    }
    if (!part->strategy) {
        ram_reset_clear_in_place(blk, part->start, part->len,
                                 ram_reset_threads(blk->owner));
    }
    part->done = true;
    trace_ram_reset_zeroed(blk->info->name, strategy_name(part->strategy),
                           part->start, blk->info->zeroed_bytes - zeroed);
}

/* Clearing in place can wait */
static bool is_late(const RamResetPart *part)
{
    return !part->strategy || part->strategy->late;
}

/*
 * Zero all parts that are not zero yet; unless @all, leave those whose strategy
 * is late
 */
static void zero_parts(RamResetBlock *blk, bool all)
{
    int64_t before = reset_now();

    blk->zeroed = true;
    for (unsigned i = 0; i < blk->parts->len; i++) {
        RamResetPart *part = &g_array_index(blk->parts, RamResetPart, i);

        if (!part->done && (all || !is_late(part))) {
            zero_part(blk, part);
        }
        blk->zeroed = blk->zeroed && part->done;
    }
    blk->info->reset_ns += reset_now() - before;
}

/*
 * For a late strategy "known zero" means that the page will be zero, unless it
 * is loaded.  A private mapping of a file that another block maps shared cannot
 * wait: it shows the pages that are loaded there.  Nothing is known of it
 * afterwards.
 */
static void begin_block(RamResetBlock *blk, bool all_notified)
{
    bool aliased = ram_reset_block_is_aliased(blk->rb);

    zero_parts(blk, aliased || !all_notified);
    if (!aliased) {
        blk->known = zeromap_new(blk->map.len, qemu_target_page_bits());
        zeromap_mark(blk->known, 0, blk->map.len);
    }
    memory_region_set_dirty(blk->rb->mr, 0, blk->map.len);
}

/* Mapping fresh memory is as fast as any other way to reset a mapping */
static void unmap_all(RamResetLeftOut *left_out, void *opaque)
{
    g_autoptr(RamResetBlockList) list = NULL;

    if (!qatomic_read(&ram_reset_flags.any_mapped)) {
        return;
    }
    list = ram_reset_list_blocks();
    for (unsigned i = 0; i < list->nr; i++) {
        if (!left_out(&list->blocks[i], opaque)) {
            ram_reset_unmap(&list->blocks[i]);
        }
    }
}

void ram_reset_begin_without(RamResetLeftOut *left_out, void *opaque,
                             bool all_notified, uint64_t expected)
{
    double all;

    assert(bql_locked() && !ram_reset_blocks_are_listed());
    if (!ram_reset_enabled()) {
        return;
    }
    unmap_all(left_out, opaque);
    reset.list = ram_reset_list_blocks();
    reset.all_notified = all_notified;
    all = reset.list->bytes;
    for (unsigned i = 0; i < reset.list->nr; i++) {
        RamResetBlock *blk = &reset.list->blocks[i];

        plan_block(blk, left_out(blk, opaque), blk->map.len / all * expected);
    }
    ram_reset_flags.running = true;
    for (unsigned i = 0; i < reset.list->nr; i++) {
        if (reset.list->blocks[i].parts) {
            begin_block(&reset.list->blocks[i], all_notified);
        }
    }
}

static bool is_ignored(const RamResetBlock *blk, void *opaque)
{
    return blk->ignored;
}

void ram_reset_begin(bool all_notified, uint64_t expected)
{
    ram_reset_begin_without(is_ignored, NULL, all_notified, expected);
}

/* Records come block by block: start the search where the last one ended */
static RamResetBlock *reset_find_block(RAMBlock *rb, const uint8_t *host)
{
    unsigned nr = reset.list ? reset.list->nr : 0;

    for (unsigned i = 0; i < nr; i++) {
        unsigned at = reset.last + i < nr ? reset.last + i
                                          : reset.last + i - nr;
        RamResetBlock *blk = &reset.list->blocks[at];

        if (blk->rb == rb || (host >= blk->map.host &&
                              host < blk->map.host + blk->map.len)) {
            reset.last = at;
            return blk;
        }
    }
    return NULL;
}

bool ram_reset_do_known_zero(const void *host, size_t size)
{
    RamResetBlock *blk = reset_find_block(NULL, host);

    return blk && blk->known &&
           zeromap_known(blk->known, (uint8_t *)host - blk->map.host, size);
}

uint64_t ram_reset_known_run(RAMBlock *rb, ram_addr_t offset, uint64_t max)
{
    RamResetBlock *blk = reset_find_block(rb, NULL);

    return blk && blk->known ? zeromap_run(blk->known, offset, max) : 0;
}

void ram_reset_pages_skipped(RAMBlock *rb, uint64_t pages)
{
    RamResetBlock *blk = reset_find_block(rb, NULL);

    if (blk) {
        blk->info->skipped_pages += pages;
    }
}

void ram_reset_page_loaded(RAMBlock *rb, ram_addr_t offset, RamResetPage what)
{
    RamResetBlock *blk = reset_find_block(rb, NULL);
    size_t size = qemu_target_page_size();
    bool known;

    if (!blk) {
        return;
    }
    known = blk->known && zeromap_known(blk->known, offset, size);
    if (what == RAM_RESET_PAGE_ZERO) {
        blk->info->skipped_pages += known;
        blk->info->checked_pages += !known;
        return;
    }
    if (known) {
        if (what == RAM_RESET_PAGE_CHANGE && !blk->zeroed) {
            memset(blk->map.host + offset, 0, size);
        }
        zeromap_forget(blk->known, offset, size);
    }
    blk->info->copied_pages++;
}

void ram_reset_complete_zeroing(void)
{
    for (unsigned i = 0; reset.list && i < reset.list->nr; i++) {
        RamResetBlock *blk = &reset.list->blocks[i];

        if (blk->parts && !blk->zeroed) {
            zero_parts(blk, true);
        }
        if (!reset.all_notified) {
            g_clear_pointer(&blk->known, zeromap_free);
        }
    }
}

RamResetBlockInfoList *ram_reset_finish(bool loaded)
{
    RamResetBlockInfoList *infos = NULL, **tail = &infos;

    ram_reset_complete_zeroing();
    for (unsigned i = 0; reset.list && i < reset.list->nr; i++) {
        RamResetBlock *blk = &reset.list->blocks[i];

        if (loaded && blk->parts && RAM_RESET_GET_CLASS(blk->owner)->loaded) {
            RAM_RESET_GET_CLASS(blk->owner)->loaded(blk->owner, blk);
        }
        QAPI_LIST_APPEND(tail, g_steal_pointer(&blk->info));
    }
    g_clear_pointer(&reset.list, ram_reset_block_list_unref);
    assert(!ram_reset_blocks_are_listed());
    reset.last = 0;
    ram_reset_flags.running = false;
    return infos;
}

uint64_t ram_reset_fallbacks(void)
{
    return reset.fallbacks;
}
