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
 * Each piece that is discarded may be a mapping of its own, of which a process
 * may have 65530 by default.  What is discarded after that is cleared.
 */
#define MAX_DISCARDS 16384

typedef struct Mapped {
    uint8_t *host;
    uint64_t len;
    GArray *runs;
    unsigned discards;
} Mapped;

bool ram_reset_any_mapped;

/* Changed with the BQL held, under @lock; discards may come from any thread */
static GArray *all_mapped;
static QemuMutex lock;
static RAMBlockNotifier notifier;

static Mapped *find(const uint8_t *host)
{
    for (unsigned i = 0; all_mapped && i < all_mapped->len; i++) {
        Mapped *m = &g_array_index(all_mapped, Mapped, i);

        if (host >= m->host && host < m->host + m->len) {
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

/*
 * A block that is unplugged, not one that gets fresh memory, which may fail.
 * To take memory for mapped that is not does no harm.
 */
static void block_removed(RAMBlockNotifier *n, void *host, size_t size,
                          size_t max_size)
{
    unsigned nr;

    if (!ram_reset_blocks(&nr)) {
        forget(host);
    }
}

static void note(const RamResetBlock *blk, const GArray *runs)
{
    Mapped m = {
        .host = blk->rb->host, .len = blk->rb->max_length,
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

const GArray *ram_reset_mapped_runs(RAMBlock *rb)
{
    Mapped *m = find(rb->host);

    return m ? m->runs : NULL;
}

static bool touches(const Mapped *m, uint64_t start, uint64_t end)
{
    for (unsigned i = 0; i < m->runs->len; i++) {
        TemplateRun run = g_array_index(m->runs, TemplateRun, i);

        if (run.start < end && start < run.start + run.len) {
            return true;
        }
    }
    return false;
}

bool ram_reset_is_mapped(const uint8_t *host, uint64_t start, uint64_t end)
{
    Mapped *m = find(host);

    return m && touches(m, start, end);
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
    const char *reason = NULL;
    Error *err = NULL;
    char *text;

    if (!blk->owner) {
        reason = "no ram-reset object claims it";
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

    if (remap->zero(blk->owner, blk, 0, blk->map.len) < 0) {
        return false;
    }
    if (ram_reset_any_mapped) {
        forget(blk->rb->host);
    }
    return true;
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
    if (blk->owner && ram_reset_mapped_runs(blk->rb) &&
        may_replace(blk, NULL)) {
        replace(blk);
    }
}

bool ram_reset_do_discard(RAMBlock *rb, uint64_t start, uint64_t len)
{
    uint64_t calls = 0;
    PrimMap map = ram_reset_block_map(rb);
    PrimRange range = { start, len };
    int ret = -ENOMEM;
    Mapped *m;

    QEMU_LOCK_GUARD(&lock);
    m = find(rb->host);
    if (!m || !touches(m, start, start + len)) {
        return false;
    }
    map.calls = &calls;
    if (m->discards < MAX_DISCARDS) {
        m->discards++;
        ret = prim_overlay(&map, -1, 0, &range, 1);
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
