/*
 * RAM reset: memory that is mapped from a template
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qapi/error.h"
#include "qemu/error-report.h"
#include "qemu/lockable.h"
#include "mapped.h"
#include "smallpages.h"
#include "trace.h"

/*
 * Each piece that is discarded may take two mappings more, of which a process
 * has a limited number.  When an eighth of it is used up for that by all
 * blocks, what is discarded is cleared.
 */
#define MAX_MAP_COUNT   "/proc/sys/vm/max_map_count"
#define COMMON_LIMIT    65530

/* @runs: of TemplateRun, without what has been discarded */
typedef struct Mapped {
    RAMBlock *rb;
    uint8_t *host;
    GArray *runs;
    unsigned discards;
} Mapped;

bool ram_reset_any_mapped;

/* Changed with the BQL held, under @lock; discards may come from any thread */
static GArray *all_mapped;
static QemuMutex lock;
static RAMBlockNotifier notifier;

/* What is being given fresh memory; its removal is none.  BQL */
static const uint8_t *replacing;

static Mapped *find(const uint8_t *host)
{
    for (unsigned i = 0; all_mapped && i < all_mapped->len; i++) {
        Mapped *m = &g_array_index(all_mapped, Mapped, i);

        if (host == m->host) {
            return m;
        }
    }
    return NULL;
}

static void forget(const uint8_t *host)
{
    Mapped *m;

    ram_reset_small_pages_end(host);
    QEMU_LOCK_GUARD(&lock);
    m = find(host);
    if (m) {
        g_array_unref(m->runs);
        g_array_remove_index_fast(all_mapped, m - (Mapped *)all_mapped->data);
        qatomic_set(&ram_reset_any_mapped, all_mapped->len);
    }
}

/* A block that is unplugged, at any time when the BQL is released */
static void block_removed(RAMBlockNotifier *n, void *host, size_t size,
                          size_t max_size)
{
    if (host != replacing) {
        forget(host);
    }
}

static void note(const RamResetBlock *blk, const GArray *runs)
{
    Mapped m = {
        .rb = blk->rb, .host = blk->rb->host,
        .runs = g_array_sized_new(false, false, sizeof(TemplateRun),
                                  runs->len),
    };

    if (runs->len) {
        g_array_append_vals(m.runs, runs->data, runs->len);
    }
    if (!all_mapped) {
        qemu_mutex_init(&lock);
        all_mapped = g_array_new(false, false, sizeof(Mapped));
        notifier.ram_block_removed = block_removed;
        ram_block_notifier_add(&notifier);
    }
    WITH_QEMU_LOCK_GUARD(&lock) {
        g_array_append_val(all_mapped, m);
        qatomic_set(&ram_reset_any_mapped, true);
    }
}

GArray *ram_reset_mapped_runs(RAMBlock *rb)
{
    GArray *runs;
    Mapped *m;

    if (!ram_reset_any_mapped) {
        return NULL;
    }
    QEMU_LOCK_GUARD(&lock);
    m = find(rb->host);
    if (!m || m->rb != rb) {
        return NULL;
    }
    runs = g_array_sized_new(false, false, sizeof(TemplateRun), m->runs->len);
    if (m->runs->len) {
        g_array_append_vals(runs, m->runs->data, m->runs->len);
    }
    return runs;
}

bool ram_reset_has_mapped(RAMBlock *rb)
{
    Mapped *m = ram_reset_any_mapped ? find(rb->host) : NULL;

    return m && m->rb == rb;
}

/* The first run of @m that ends behind @at */
static unsigned first_run(const Mapped *m, uint64_t at)
{
    unsigned low = 0, high = m->runs->len;

    while (low < high) {
        unsigned mid = (low + high) / 2;
        TemplateRun run = g_array_index(m->runs, TemplateRun, mid);

        if (run.start + run.len > at) {
            high = mid;
        } else {
            low = mid + 1;
        }
    }
    return low;
}

static bool touches(const Mapped *m, uint64_t start, uint64_t end)
{
    unsigned i = first_run(m, start);

    return i < m->runs->len &&
           g_array_index(m->runs, TemplateRun, i).start < end;
}

bool ram_reset_is_mapped(const uint8_t *host, uint64_t start, uint64_t end)
{
    Mapped *m = find(host);

    return m && touches(m, start, end);
}

/* [@start, @end) is no part of the template any more */
static void take_out(Mapped *m, uint64_t start, uint64_t end)
{
    unsigned i = first_run(m, start);

    while (i < m->runs->len) {
        TemplateRun *run = &g_array_index(m->runs, TemplateRun, i);
        TemplateRun rest = { end, run->start + run->len - end };

        if (run->start >= end) {
            return;
        }
        if (run->start + run->len <= end) {
            rest.len = 0;
        }
        if (run->start < start) {
            run->len = start - run->start;
            i++;
        } else {
            g_array_remove_index(m->runs, i);
        }
        if (rest.len) {
            g_array_insert_val(m->runs, i, rest);
            return;
        }
    }
}

/* Whether fresh memory may take the place of what @blk has */
static bool may_replace(const RamResetBlock *blk, Error **errp)
{
    return ram_reset_class(TYPE_RAM_RESET_REMAP)->supports(blk->owner, blk,
                                                           errp);
}

char *ram_reset_map_refusal(const RamResetBlock *blk, const TemplateFile *f,
                            unsigned nr)
{
    const TemplateBlock *b = &g_array_index(f->blocks, TemplateBlock, nr);
    HostMemoryBackend *backend = ram_reset_block_backend(blk->rb);
    const char *reason = ram_reset_block_refusal(blk->rb);
    Error *err = NULL;
    char *text;

    if (reason) {
        return g_strdup(reason);
    }
    if (!blk->owner) {
        reason = "no ram-reset object claims it";
    } else if (backend && backend->policy != HOST_MEM_POLICY_DEFAULT) {
        reason = "it has a NUMA policy, which a template on tmpfs would have "
                 "for all";
    } else if (blk->map.shared || blk->map.fd >= 0) {
        reason = "it is not private anonymous memory";
    } else if (blk->map.page_size != qemu_real_host_page_size() ||
               f->page_size % qemu_real_host_page_size()) {
        reason = "its pages have another size";
    } else if (ram_reset_block_is_preallocated(blk)) {
        reason = "it is preallocated";
    } else if (b->runs->len > TEMPLATE_FILE_RUNS) {
        reason = "what the snapshot has lies too scattered";
    } else if (template_file_is_hugetlb(f)) {
        reason = "the template is on hugetlbfs, of which a whole hugepage "
                 "would be copied for a byte";
    }
    if (reason || may_replace(blk, &err)) {
        return g_strdup(reason);
    }
    text = g_strdup(error_get_pretty(err));
    error_free(err);
    return text;
}

static void die_without_memory(const char *name)
{
    error_report("RAM block '%s' could not be mapped again, the host has no "
                 "memory left", name);
    exit(1);
}

/* A reset by fresh memory, whatever the block's own strategy is */
static bool replace(RamResetBlock *blk)
{
    RamResetClass *remap = ram_reset_class(TYPE_RAM_RESET_REMAP);
    int ret;

    replacing = blk->rb->host;
    ret = remap->zero(blk->owner, blk, 0, blk->map.len);
    replacing = NULL;
    if (ret >= 0 && ram_reset_any_mapped) {
        forget(blk->rb->host);
    }
    return ret >= 0;
}

bool ram_reset_map(RamResetBlock *blk, const TemplateFile *f, unsigned nr)
{
    const TemplateBlock *b = &g_array_index(f->blocks, TemplateBlock, nr);
    PrimMap map = ram_reset_block_whole_map(blk);
    int ret;

    QEMU_BUILD_BUG_ON(sizeof(TemplateRun) != sizeof(PrimRange));
    if (!replace(blk)) {
        return false;
    }
    /* From now on, so that a failure leaves no mapping that is not known */
    note(blk, b->runs);
    ret = prim_overlay(&map, f->fd, b->offset, (PrimRange *)b->runs->data,
                       b->runs->len);
    if (ret == -EFAULT) {
        die_without_memory(blk->info->name);
    }
    ram_reset_advise_as_before(blk->rb, &map);
    ram_reset_small_pages(blk->rb);
    trace_ram_reset_map(blk->info->name, b->runs->len, ret);
    return ret >= 0;
}

void ram_reset_unmap(RamResetBlock *blk)
{
    if (blk->owner && ram_reset_has_mapped(blk->rb) &&
        may_replace(blk, NULL)) {
        replace(blk);
    }
}

static unsigned max_discards(void)
{
    static unsigned max;
    g_autofree char *text = NULL;

    if (!max) {
        max = g_file_get_contents(MAX_MAP_COUNT, &text, NULL, NULL)
              ? MIN(g_ascii_strtoull(text, NULL, 10), INT_MAX) : COMMON_LIMIT;
        max = MAX(max / 16, 1);
    }
    return max;
}

static bool may_discard(void)
{
    unsigned discards = 0;

    for (unsigned i = 0; i < all_mapped->len; i++) {
        discards += g_array_index(all_mapped, Mapped, i).discards;
    }
    return discards < max_discards();
}

/* 0 if there is zeroed memory now; 1 if that is left to the caller */
static int discard(RAMBlock *rb, PrimMap *map, PrimRange range)
{
    int ret = -ENOMEM;
    Mapped *m;

    QEMU_LOCK_GUARD(&lock);
    m = find(rb->host);
    if (!m || m->rb != rb || !touches(m, range.start, range.start + range.len)) {
        return 1;
    }
    if (may_discard()) {
        m->discards++;
        ret = prim_overlay(map, -1, 0, &range, 1);
    }
    if (ret >= 0) {
        take_out(m, range.start, range.start + range.len);
    }
    return ret;
}

bool ram_reset_do_discard(RAMBlock *rb, uint64_t start, uint64_t len)
{
    uint64_t calls = 0;
    PrimMap map = ram_reset_block_map(rb);
    int ret;

    map.calls = &calls;
    ret = discard(rb, &map, (PrimRange) { start, len });
    if (ret == 1) {
        return false;
    }
    if (ret == -EFAULT) {
        die_without_memory(rb->idstr);
    }
    if (ret < 0) {
        memset(rb->host + start, 0, len);
        return true;
    }
    map.host += start;
    map.len = len;
    ram_reset_advise_as_before(rb, &map);
    return true;
}
