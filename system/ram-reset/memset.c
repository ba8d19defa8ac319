/*
 * ram-reset-memset: clear in place
 *
 * The reference that every other strategy must equal, and what they fall
 * back to.  Memory stays where it is.  Pages that the host has not populated
 * are not touched, and pages that read zero are not written, so clearing
 * never makes the guest's memory grow.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/cutils.h"
#include "qemu/units.h"
#include "internal.h"

/* Both large enough to hide the cost of starting a thread or a new chunk */
#define CHUNK_SIZE      (32 * MiB)
#define BYTES_A_THREAD  (64 * MiB)

/* The unit in which memory is tested for being zero */
#define TEST_SIZE       4096

typedef struct ClearJob {
    const RamResetBlock *blk;
    uint64_t end;
    uint64_t next;              /* atomic: the first chunk nobody has taken */
    uint64_t cleared;           /* atomic: bytes */
} ClearJob;

/* Clear what is not zero in populated memory; returns bytes cleared */
static uint64_t clear_populated(uint8_t *host, uint64_t len)
{
    uint64_t cleared = 0;
    uint64_t at, n;

    for (at = 0; at < len; at += n) {
        n = MIN(TEST_SIZE, len - at);
        if (!buffer_is_zero(host + at, n)) {
            prim_clear(host + at, n);
            cleared += n;
        }
    }
    return cleared;
}

static uint64_t clear_chunk(const RamResetBlock *blk,
                            uint64_t start, uint64_t end)
{
    g_autofree PrimDataIter *it = g_new(PrimDataIter, 1);
    uint64_t from, to, cleared = 0;

    prim_data_begin(it, &blk->map, blk->backing, start, end);
    while (prim_data_next(it, &from, &to)) {
        cleared += clear_populated(blk->map.host + from, to - from);
    }
    prim_data_end(it);
    return cleared;
}

static void *clear_worker(void *opaque)
{
    ClearJob *job = opaque;
    uint64_t start, cleared = 0;

    while ((start = qatomic_fetch_add(&job->next, CHUNK_SIZE)) < job->end) {
        cleared += clear_chunk(job->blk, start,
                               MIN(start + CHUNK_SIZE, job->end));
    }
    prim_clear_fence();
    qatomic_add(&job->cleared, cleared);
    return NULL;
}

static bool memset_supports(RamReset *rr, const RamResetBlock *blk,
                            Error **errp)
{
    return true;
}

static int memset_zero(RamReset *rr, RamResetBlock *blk,
                       uint64_t start, uint64_t len)
{
    ClearJob job = {
        .blk = blk,
        .end = start + len,
        .next = start,
    };
    unsigned nr = MIN(ram_reset_threads(rr), DIV_ROUND_UP(len, BYTES_A_THREAD));
    g_autofree GThread **threads = g_new(GThread *, nr);

    for (unsigned i = 1; i < nr; i++) {
        threads[i] = g_thread_try_new("ram-reset", clear_worker, &job, NULL);
    }
    clear_worker(&job);
    for (unsigned i = 1; i < nr; i++) {
        if (threads[i]) {
            g_thread_join(threads[i]);
        }
    }
    blk->info->zeroed_bytes += job.cleared;
    return 0;
}

static void memset_class_init(ObjectClass *oc, RamResetClassData *data)
{
    RamResetClass *rrc = RAM_RESET_CLASS(oc);

    rrc->supports = memset_supports;
    rrc->zero = memset_zero;
}

static const TypeInfo memset_types[] = {
    {
        .name = TYPE_RAM_RESET_MEMSET,
        .parent = TYPE_RAM_RESET,
        .class_init = memset_class_init,
    },
};

DEFINE_TYPES(memset_types)
