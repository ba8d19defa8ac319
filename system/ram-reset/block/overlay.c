/*
 * RAM reset: map the memory of a block from a template
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qapi/error.h"
#include "qemu/rcu.h"
#include "system/ram-reset.h"
#include "system/ram-reset/block/base-pages.h"
#include "system/ram-reset/block/fresh.h"
#include "system/ram-reset/block/overlay-map.h"
#include "system/ram-reset/block/overlay.h"
#include "system/ram-reset/trace.h"

/*
 * Each discarded piece may need two more mappings, and a process has a limited
 * number.  When discards of all blocks have used an eighth of it, further
 * pieces are cleared instead.
 */
#define MAX_MAP_COUNT   "/proc/sys/vm/max_map_count"
#define COMMON_LIMIT    65530

static struct {
    /* Set with the BQL held, before the first mapping */
    unsigned max_discards;
    /* The block that is getting fresh memory: ignore its removal. BQL */
    const uint8_t *replacing;
    RAMBlockNotifier notifier;
} overlay;

static void overlay_drop(const uint8_t *host)
{
    ram_reset_base_pages_end(host);
    overlay_map_remove(host);
}

/* A block is being unplugged, which may happen whenever the BQL is released */
static void overlay_block_removed(RAMBlockNotifier *n, void *host, size_t size,
                                  size_t max_size)
{
    if (host != overlay.replacing) {
        overlay_drop(host);
    }
}

static unsigned count_max_discards(void)
{
    g_autofree char *text = NULL;
    unsigned max = g_file_get_contents(MAX_MAP_COUNT, &text, NULL, NULL)
                   ? MIN(g_ascii_strtoull(text, NULL, 10), INT_MAX)
                   : COMMON_LIMIT;

    return MAX(max / 16, 1);
}

static void overlay_note(const RamResetBlock *blk, int fd, const GArray *runs)
{
    if (!overlay.notifier.ram_block_removed) {
        overlay.max_discards = count_max_discards();
        overlay.notifier.ram_block_removed = overlay_block_removed;
        ram_block_notifier_add(&overlay.notifier);
    }
    overlay_map_add(blk->rb->host, blk->rb, fd, runs);
}

bool ram_reset_map_is_allowed(const RamResetBlock *blk,
                              const RamResetOverlay *from, Error **errp)
{
    HostMemoryBackend *backend = ram_reset_block_backend(blk->rb);
    const char *reason = ram_reset_block_refusal(blk->rb);

    if (reason) {
        /* the block must not be touched at all */
    } else if (!blk->owner) {
        reason = "no ram-reset object covers it";
    } else if (backend && backend->policy != HOST_MEM_POLICY_DEFAULT) {
        reason = "it has a NUMA policy, which a template on tmpfs would apply "
                 "to all";
    } else if (blk->map.shared || blk->map.fd >= 0) {
        reason = "it is not private anonymous memory";
    } else if (blk->map.page_size != qemu_real_host_page_size() ||
               from->page_size % qemu_real_host_page_size()) {
        reason = "its pages have another size";
    } else if (ram_reset_block_is_preallocated(blk)) {
        reason = "it is preallocated";
    } else if (from->runs->len > OVERLAY_MAP_MAX) {
        reason = "the snapshot's pages are too scattered";
    } else if (prim_is_on_hugetlbfs(from->fd)) {
        reason = "the template is on hugetlbfs, where one written byte "
                 "would copy a whole hugepage";
    }
    if (reason) {
        error_setg(errp, "%s", reason);
        return false;
    }
    return ram_reset_fresh_is_allowed(blk, errp);
}

/* Reset the block by fresh memory, whatever its own strategy is */
static int overlay_replace(RamResetBlock *blk)
{
    int ret;

    overlay.replacing = blk->rb->host;
    ret = ram_reset_fresh(blk);
    overlay.replacing = NULL;
    if (ret >= 0) {
        overlay_drop(blk->rb->host);
    }
    return ret;
}

int ram_reset_map(RamResetBlock *blk, const RamResetOverlay *from)
{
    PrimMap map = ram_reset_block_whole_map(blk);
    int ret = overlay_replace(blk);

    if (ret < 0) {
        return ret;
    }
    /*
     * Note the runs before mapping them, so that no mapping is unknown after a
     * failure
     */
    overlay_note(blk, from->fd, from->runs);
    ret = prim_overlay(&map, from->fd, from->offset,
                       (PrimRange *)from->runs->data, from->runs->len);
    if (ret == -EFAULT) {
        ram_reset_die_without_memory(blk->info->name);
    }
    ram_reset_advise_as_before(blk->rb, &map);
    ram_reset_base_pages(blk->rb);
    trace_ram_reset_map(blk->info->name, from->runs->len, ret);
    return ret;
}

void ram_reset_map_ended(int fd)
{
    RAMBlock *rb;

    RCU_READ_LOCK_GUARD();
    RAMBLOCK_FOREACH(rb) {
        if (overlay_map_is_of(rb->host, rb, fd)) {
            PrimMap map = ram_reset_block_map(rb);
            uint64_t calls = 0;

            map.calls = &calls;
            ram_reset_advise_as_before(rb, &map);
            overlay_drop(rb->host);
        }
    }
}

void ram_reset_unmap(RamResetBlock *blk)
{
    if (blk->owner && overlay_map_has(blk->rb->host, blk->rb) &&
        ram_reset_fresh_is_allowed(blk, NULL)) {
        overlay_replace(blk);
    }
}

typedef struct Discard {
    PrimMap map;
    PrimRange range;
} Discard;

static int overlay_discard(void *opaque)
{
    Discard *d = opaque;

    return prim_overlay(&d->map, -1, 0, &d->range, 1);
}

bool ram_reset_do_discard(RAMBlock *rb, uint64_t start, uint64_t len)
{
    uint64_t calls = 0;
    Discard d = { .map = ram_reset_block_map(rb), .range = { start, len } };
    int ret;

    d.map.calls = &calls;
    ret = overlay_map_cut(rb->host, rb, start, start + len,
                          overlay.max_discards, overlay_discard, &d);
    if (ret == 1) {
        return false;
    }
    if (ret == -EFAULT) {
        ram_reset_die_without_memory(rb->idstr);
    }
    if (ret < 0) {
        memset(rb->host + start, 0, len);
        return true;
    }
    d.map.host += start;
    d.map.len = len;
    ram_reset_advise_as_before(rb, &d.map);
    return true;
}
