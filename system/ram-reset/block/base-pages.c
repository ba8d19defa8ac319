/*
 * RAM reset: base pages for a guest that has just been loaded
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/madvise.h"
#include "qemu/timer.h"
#include "system/ram-reset/block/base-pages.h"
#include "system/ram-reset/block/overlay-map.h"
#include "system/ram-reset/trace.h"

/*
 * The first write to a transparent hugepage clears 2 MiB, which takes a tenth
 * of a millisecond.  A guest with scattered writes that is soon reverted or
 * thrown away waits longer for that than for the rest of the load.  A guest
 * with dense writes waits much longer for base pages.  So the guest is watched.
 */

/*
 * The guest's pages are checked after this time, then each time after twice as
 * long, up to the last
 */
#define FIRST_CHECK_MS   20
#define LAST_CHECK_MS    10240

/* Bytes; if the guest has populated less, nothing can be said about it */
#define ENOUGH          (1 * MiB)
/*
 * Clearing a hugepage takes as long as some twenty faults of a guest under KVM,
 * see docs/benchmarks.md
 */
#define DENSE           32
#define HUGEPAGE        (2 * MiB)

typedef struct Watched {
    uint8_t *host;
    uint64_t len;
    unsigned pause_ms;
    QEMUTimer *timer;
} Watched;

/* Array of Watched *; protected by the BQL */
static GPtrArray *watched;

static void base_pages_advise(const Watched *w, int advice)
{
    /* A refusal is not an error: then there are no hugepages */
    qemu_madvise(w->host, w->len, advice);
}

static void watched_free(void *opaque)
{
    Watched *w = opaque;

    timer_free(w->timer);
    g_free(w);
}

void ram_reset_base_pages_end(const uint8_t *host)
{
    for (unsigned i = 0; watched && i < watched->len; i++) {
        Watched *w = watched->pdata[i];

        if (w->host == host) {
            g_ptr_array_remove_index_fast(watched, i);
            return;
        }
    }
}

/*
 * Whether the populated memory is dense; memory mapped from the template does
 * not count
 */
static bool is_dense(const Watched *w, uint64_t *populated)
{
    uint64_t start, end, last = UINT64_MAX, hugepages = 0;
    g_autofree PrimDataIter *it = g_new(PrimDataIter, 1);
    PrimMap map = {
        .host = w->host, .len = w->len, .fd = -1,
        .page_size = qemu_real_host_page_size(),
    };

    *populated = 0;
    prim_data_begin(it, &map, PRIM_PRIVATE_ZERO, 0, w->len);
    while (prim_data_next(it, &start, &end)) {
        uint64_t first = start / HUGEPAGE;

        if (overlay_map_touches(w->host, start, end)) {
            continue;
        }
        *populated += end - start;
        hugepages += (end - 1) / HUGEPAGE - first + (first != last);
        last = (end - 1) / HUGEPAGE;
    }
    prim_data_end(it);
    return *populated >= ENOUGH &&
           *populated / qemu_real_host_page_size() >= DENSE * hugepages;
}

static void base_pages_check(void *opaque)
{
    Watched *w = opaque;
    uint64_t populated;
    bool dense = is_dense(w, &populated);

    trace_ram_reset_base_pages(w->host, w->pause_ms, populated, dense);
    if (dense || w->pause_ms >= LAST_CHECK_MS) {
        base_pages_advise(w, QEMU_MADV_HUGEPAGE);
        ram_reset_base_pages_end(w->host);
        return;
    }
    w->pause_ms *= 2;
    timer_mod(w->timer, qemu_clock_get_ms(QEMU_CLOCK_REALTIME) + w->pause_ms);
}

void ram_reset_base_pages(RAMBlock *rb)
{
    Watched *w = g_new0(Watched, 1);

    if (!watched) {
        watched = g_ptr_array_new_with_free_func(watched_free);
    }
    ram_reset_base_pages_end(rb->host);
    w->host = rb->host;
    w->len = ROUND_UP(rb->max_length, rb->page_size);
    w->pause_ms = FIRST_CHECK_MS;
    w->timer = timer_new_ms(QEMU_CLOCK_REALTIME, base_pages_check, w);
    g_ptr_array_add(watched, w);
    base_pages_advise(w, QEMU_MADV_NOHUGEPAGE);
    timer_mod(w->timer, qemu_clock_get_ms(QEMU_CLOCK_REALTIME) + w->pause_ms);
}
