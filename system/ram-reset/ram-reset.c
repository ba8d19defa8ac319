/*
 * RAM reset: the course of one reset
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qapi/error.h"
#include "qapi/util.h"
#include "qemu/error-report.h"
#include "qemu/main-loop.h"
#include "qemu/timer.h"
#include "mapped.h"
#include "mappedruns.h"
#include "trace.h"

/* The reset under way; protected by the BQL */
static struct {
    RamResetBlock *blocks;
    unsigned nr_blocks;
    unsigned last;              /* where the last lookup ended */
} reset;

bool ram_reset_running;

static uint64_t fallbacks;

static int64_t now(void)
{
    return get_clock();
}

/* "madvise" for ram-reset-madvise */
static const char *strategy_name(RamResetClass *rrc)
{
    const char *type = object_class_get_name(OBJECT_CLASS(rrc));

    return type + strlen(TYPE_RAM_RESET "-");
}

/* Clears in place, which serves any block and cannot fail */
static RamResetClass *fallback_class(void)
{
    return ram_reset_class(TYPE_RAM_RESET_MEMSET);
}

void ram_reset_add_part(RamResetBlock *blk, uint64_t start, uint64_t len,
                        RamResetClass *strategy)
{
    RamResetPart part = { .start = start, .len = len, .strategy = strategy };

    g_array_append_val(blk->parts, part);
}

/* The object named for @rb's backend, else the one that takes every block */
static RamReset *ram_reset_owner(RAMBlock *rb, GPtrArray *objs)
{
    const char *memdev = ram_reset_block_memdev(rb);
    RamReset *owner = NULL;

    for (unsigned i = 0; i < objs->len; i++) {
        RamReset *rr = RAM_RESET(objs->pdata[i]);

        if (!rr->memdev) {
            owner = owner ?: rr;
        } else if (!g_strcmp0(rr->memdev, memdev)) {
            return rr;
        }
    }
    return owner;
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
        strategy = fallback_class();
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

static void describe_block(RamResetBlock *blk, RAMBlock *rb, GPtrArray *objs)
{
    blk->rb = rb;
    blk->info = g_new0(RamResetBlockInfo, 1);
    blk->map = ram_reset_block_map(rb);
    blk->backing = mapped_runs_known(rb->host, rb) ? PRIM_PRIVATE_FILE
                                                   : prim_backing(&blk->map);
    blk->map.calls = &blk->info->system_calls;
    blk->info->name = g_strdup(rb->idstr);
    blk->info->size = rb->used_length;
    blk->info->page_size = rb->page_size;
    blk->owner = ram_reset_owner(rb, objs);
}

/*
 * All that are migratable.  Returns how many bytes they have.
 *
 * They are held until ram_reset_finish(): the BQL may be released between,
 * as it is to synchronize a dirty ring, and memory that is unplugged goes when
 * RCU's thread gets it.
 */
static uint64_t describe_blocks(GPtrArray *objs)
{
    uint64_t all = 0;
    RAMBlock *rb;

    assert(!reset.nr_blocks);
    RCU_READ_LOCK_GUARD();
    RAMBLOCK_FOREACH(rb) {
        reset.nr_blocks += qemu_ram_is_migratable(rb);
    }
    reset.blocks = g_new0(RamResetBlock, reset.nr_blocks);
    reset.nr_blocks = 0;
    RAMBLOCK_FOREACH(rb) {
        if (qemu_ram_is_migratable(rb)) {
            memory_region_ref(rb->mr);
            describe_block(&reset.blocks[reset.nr_blocks++], rb, objs);
            all += rb->used_length;
        }
    }
    return all;
}

static void plan_block(RamResetBlock *blk, bool ignored, uint64_t expected)
{
    const char *refusal = ignored
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
        before = now();
        plan_strategy(blk);
        blk->info->reset_ns = now() - before;
    }
}

bool ram_reset_covers(RAMBlock *rb)
{
    g_autoptr(GPtrArray) objs = ram_reset_objects();

    return qemu_ram_is_migratable(rb) && !ram_reset_block_refusal(rb) &&
           ram_reset_owner(rb, objs);
}

static void plan(GPtrArray *objs, bool (*ignored)(RAMBlock *rb),
                 uint64_t expected)
{
    double all = describe_blocks(objs);

    for (unsigned i = 0; i < reset.nr_blocks; i++) {
        RamResetBlock *blk = &reset.blocks[i];

        plan_block(blk, ignored && ignored(blk->rb),
                   blk->map.len / all * expected);
    }
}

RamResetBlock *ram_reset_blocks(unsigned *nr)
{
    *nr = reset.nr_blocks;
    return reset.blocks;
}

RamResetBlock *ram_reset_begin_blocks(unsigned *nr)
{
    g_autoptr(GPtrArray) objs = ram_reset_objects();

    describe_blocks(objs);
    for (unsigned i = 0; i < reset.nr_blocks; i++) {
        RamResetBlock *blk = &reset.blocks[i];

        blk->zeroed = true;
        if (blk->owner && !ram_reset_block_refusal(blk->rb)) {
            blk->info->object = g_strdup(ram_reset_id(blk->owner));
        }
    }
    return ram_reset_blocks(nr);
}

void ram_reset_note_fallback(RamResetBlock *blk, const char *failed, int ret)
{
    RamReset *rr = blk->owner;

    if (!rr->warned) {
        rr->warned = true;
        warn_report("%s '%s': could not reset RAM block '%s' by %s: %s; "
                    "clearing it in place (later ones are only counted, "
                    "see query-ram-reset)",
                    object_get_typename(OBJECT(rr)), ram_reset_id(rr),
                    blk->info->name, failed, strerror(-ret));
    }
    trace_ram_reset_fallback(blk->info->name, failed, ret);
    fallbacks++;
    blk->info->fallback = true;
    g_free(blk->info->reason);
    blk->info->reason = g_strdup_printf("%s failed: %s", failed,
                                        strerror(-ret));
}

static void fall_back(RamResetBlock *blk, RamResetPart *part, int ret)
{
    ram_reset_note_fallback(blk, strategy_name(part->strategy), ret);
    part->strategy = fallback_class();
    /* Some of it may be gone, and to look at it would bring it back */
    g_clear_pointer(&blk->data, g_array_unref);
    if (blk->parts->len == 1) {
        g_free(blk->info->strategy);
        blk->info->strategy = g_strdup(strategy_name(part->strategy));
    }
}

static void zero_part(RamResetBlock *blk, RamResetPart *part)
{
    uint64_t zeroed = blk->info->zeroed_bytes;
    uint64_t discarded = blk->info->discarded_pages;
    int ret = part->strategy->zero(blk->owner, blk, part->start, part->len);

    if (ret < 0) {
        blk->info->zeroed_bytes = zeroed;
        blk->info->discarded_pages = discarded;
        fall_back(blk, part, ret);
        part->strategy->zero(blk->owner, blk, part->start, part->len);
    }
    part->done = true;
    trace_ram_reset_zeroed(blk->info->name, strategy_name(part->strategy),
                           part->start, blk->info->zeroed_bytes - zeroed);
}

/* Make those parts zero that are not, and cannot wait or need @all not to */
static void zero_parts(RamResetBlock *blk, bool all)
{
    int64_t before = now();

    blk->zeroed = true;
    for (unsigned i = 0; i < blk->parts->len; i++) {
        RamResetPart *part = &g_array_index(blk->parts, RamResetPart, i);

        if (!part->done && (all || !part->strategy->late)) {
            zero_part(blk, part);
        }
        blk->zeroed = blk->zeroed && part->done;
    }
    blk->info->reset_ns += now() - before;
}

/*
 * For a late strategy "known zero" means: will be, unless the page is loaded.
 * A private mapping that shows what is loaded into a shared one of the same
 * file cannot wait, and nothing is known of it afterwards.
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

/* Fresh memory is as quick as anything that could be done to a mapping */
static void unmap_all(bool (*ignored)(RAMBlock *rb))
{
    unsigned nr;
    RamResetBlock *blocks;

    if (!ram_reset_any_mapped) {
        return;
    }
    blocks = ram_reset_begin_blocks(&nr);
    for (unsigned i = 0; i < nr; i++) {
        if (!ignored || !ignored(blocks[i].rb)) {
            ram_reset_unmap(&blocks[i]);
        }
    }
    qapi_free_RamResetBlockInfoList(ram_reset_finish(false));
}

void ram_reset_begin(bool (*ignored)(RAMBlock *rb), bool all_notified,
                     uint64_t expected)
{
    g_autoptr(GPtrArray) objs = ram_reset_objects();

    assert(bql_locked() && !reset.nr_blocks);
    if (!objs->len) {
        return;
    }
    unmap_all(ignored);
    plan(objs, ignored, expected);
    ram_reset_running = true;
    for (unsigned i = 0; i < reset.nr_blocks; i++) {
        RamResetBlock *blk = &reset.blocks[i];

        if (blk->owner && blk->map.len) {
            begin_block(blk, all_notified);
        }
    }
}

/* Records come block by block, so the search starts where the last ended */
static RamResetBlock *lookup(RAMBlock *rb, const uint8_t *host)
{
    for (unsigned i = 0; i < reset.nr_blocks; i++) {
        unsigned at = reset.last + i < reset.nr_blocks ?
                      reset.last + i : reset.last + i - reset.nr_blocks;
        RamResetBlock *blk = &reset.blocks[at];

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
    RamResetBlock *blk = lookup(NULL, host);

    return blk && blk->known &&
           zeromap_known(blk->known, (uint8_t *)host - blk->map.host, size);
}

uint64_t ram_reset_known_run(RAMBlock *rb, ram_addr_t offset, uint64_t max)
{
    RamResetBlock *blk = lookup(rb, NULL);

    return blk && blk->known ? zeromap_run(blk->known, offset, max) : 0;
}

void ram_reset_pages_skipped(RAMBlock *rb, uint64_t pages)
{
    RamResetBlock *blk = lookup(rb, NULL);

    if (blk) {
        blk->info->skipped_pages += pages;
    }
}

void ram_reset_page_loaded(RAMBlock *rb, ram_addr_t offset, RamResetPage what)
{
    RamResetBlock *blk = lookup(rb, NULL);
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
    for (unsigned i = 0; i < reset.nr_blocks; i++) {
        RamResetBlock *blk = &reset.blocks[i];

        if (blk->owner && blk->map.len && !blk->zeroed) {
            zero_parts(blk, true);
        }
    }
}

RamResetBlockInfoList *ram_reset_finish(bool loaded)
{
    RamResetBlockInfoList *list = NULL, **tail = &list;

    ram_reset_complete_zeroing();
    for (unsigned i = 0; i < reset.nr_blocks; i++) {
        RamResetBlock *blk = &reset.blocks[i];

        if (loaded && blk->parts && RAM_RESET_GET_CLASS(blk->owner)->loaded) {
            RAM_RESET_GET_CLASS(blk->owner)->loaded(blk->owner, blk);
        }
        QAPI_LIST_APPEND(tail, blk->info);
        g_clear_pointer(&blk->parts, g_array_unref);
        g_clear_pointer(&blk->data, g_array_unref);
        g_free(blk->cleared);
        zeromap_free(blk->known);
        memory_region_unref(blk->rb->mr);
    }
    g_free(reset.blocks);
    memset(&reset, 0, sizeof(reset));
    ram_reset_running = false;
    return list;
}

uint64_t ram_reset_fallbacks(void)
{
    return fallbacks;
}
