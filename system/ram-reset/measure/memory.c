/*
 * Measuring: the costs of making memory zero on this host
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include <math.h>
#include "qemu/madvise.h"
#include "qemu/units.h"
#include "system/system.h"
#include "system/ram-reset/block/clear.h"
#include "system/ram-reset/measure/memory.h"
#include "system/ram-reset/measure/scratch.h"
#ifdef __SSE2__
#include <emmintrin.h>
#endif

#define PAGE_SIZE   4096
#define HUGE_SIZE   SCRATCH_ALIGN
#define CACHE_LINE  64

/*
 * The scratch memory has so many parts; their median is used, since hosts are
 * noisy
 */
#define SLICES      MEASURE_MAX_SAMPLES
#define SLICE       (128 * KiB)
#define HUGE_SLICES 4

/*
 * Time for one kind of memory, in ns of CPU time; after that a few samples must
 * do
 */
#define PATIENCE    5000000
#define FEW_SLICES  3

typedef struct Scratch {
    PrimMap map;
    PrimBacking backing;
    size_t slice, nr;
    size_t granule;             /* bytes */
    int64_t deadline;
} Scratch;

static uint8_t *measure_slice(const Scratch *s, unsigned i)
{
    return s->map.host + i * s->slice;
}

/* From here on use about as many slices as so far */
static void measure_shorten(Scratch *s)
{
    if (measure_clock() > s->deadline) {
        s->nr = MIN(s->nr, FEW_SLICES);
    }
}

/* Bytes that are populated by touching one byte; 0 if unknown */
static uint64_t populated_by_touch(const Scratch *s, size_t at)
{
    g_autofree PrimDataIter *it = g_new(PrimDataIter, 1);
    uint64_t start, end, sum = 0;

    scratch_touch(s->map.host + at, 1, 1);
    prim_data_begin(it, &s->map, s->backing, 0, s->map.len);
    while (prim_data_next(it, &start, &end)) {
        sum += end - start;
    }
    prim_data_end(it);
    return sum == s->map.len ? 0 : sum;
}

/* Try more than once: sometimes the kernel has no hugepage at hand */
static bool find_granule(Scratch *s)
{
    uint64_t populated = 0, before;

    s->granule = qemu_real_host_page_size();
    for (size_t at = 0; at < s->map.len && s->granule < HUGE_SIZE &&
         at < (HUGE_SLICES - 1) * HUGE_SIZE; at += HUGE_SIZE) {
        before = populated;
        populated = populated_by_touch(s, at);
        if (populated <= before) {
            return false;
        }
        s->granule = MAX(s->granule, pow2floor(populated - before));
    }
    s->granule = MIN(s->granule, HUGE_SIZE);
    if (s->granule > SLICE) {
        s->nr = HUGE_SLICES;
        s->slice = HUGE_SIZE;
        return true;
    }
    s->nr = SLICES;
    s->slice = SLICE;
    munmap(measure_slice(s, SLICES), s->map.len - SLICES * SLICE);
    s->map.len = SLICES * SLICE;
    return s->map.fd < 0 || ftruncate(s->map.fd, s->map.len) == 0;
}

/* Flush the caches: a guest's memory has seldom been used a moment ago */
static void measure_flush(uint8_t *host, size_t len)
{
#ifdef __SSE2__
    for (size_t at = 0; at < len; at += CACHE_LINE) {
        _mm_clflush(host + at);
    }
    _mm_mfence();
#endif
}

static double time_touch(Scratch *s)
{
    MeasureSamples samples = { .nr = 0 };

    measure_shorten(s);
    for (unsigned i = 0; i < s->nr; i++) {
        int64_t before = measure_clock();

        scratch_touch(measure_slice(s, i), s->slice, s->granule);
        measure_add(&samples, before);
    }
    return measure_median(&samples) / (s->slice / s->granule);
}

/*
 * Time for each page of a slice, filled with @value.  A part of a large slice
 * is enough: some hosts take 170 ns to flush a cache line.
 */
static double time_clear(Scratch *s, int value)
{
    MeasureSamples samples = { .nr = 0 };
    size_t len = MIN(s->slice, SLICE);

    measure_shorten(s);
    for (unsigned i = 0; i < s->nr; i++) {
        g_autoptr(GArray) pieces = g_array_new(false, false,
                                               sizeof(RamResetPiece));
        RamResetPiece piece = { .len = len };
        int64_t before;

        g_array_append_val(pieces, piece);
        memset(measure_slice(s, i), value, len);
        measure_flush(measure_slice(s, i), len);
        before = measure_clock();
        ram_reset_clear_pieces(measure_slice(s, i), pieces, 1);
        measure_add(&samples, before);
    }
    return measure_median(&samples) / (len / PAGE_SIZE);
}

/* Time for each slice, populated or not; negative if the kernel refuses */
static double time_discard(const Scratch *s)
{
    MeasureSamples samples = { .nr = 0 };

    for (unsigned i = 0; i < s->nr; i++) {
        int64_t before = measure_clock();

        if (prim_discard(&s->map, s->backing, i * s->slice, s->slice) < 0) {
            return -1;
        }
        measure_add(&samples, before);
    }
    return measure_median(&samples);
}

/*
 * Time for all memory at once, hence the fastest of a few times; negative if
 * the kernel refuses
 */
static double time_remap(const Scratch *s, bool populated)
{
    double best = INFINITY;

    for (unsigned i = 0; i < MEASURE_TRIES; i++) {
        PrimFresh fresh;
        int64_t before;

        if (populated) {
            scratch_touch(s->map.host, s->map.len, s->granule);
        }
        before = measure_clock();
        if (prim_fresh_map(&s->map, &fresh) < 0 ||
            prim_fresh_swap(&s->map, &fresh) < 0) {
            return -1;
        }
        best = MIN(best, measure_clock() - before);
        qemu_madvise(s->map.host, s->map.len, QEMU_MADV_HUGEPAGE);
    }
    return best;
}

/* Touch nothing after a failure: there may be no memory any more */
static bool measure_all(Scratch *s, MemoryCosts *costs)
{
    double full, empty;

    if (!find_granule(s) || time_discard(s) < 0) {
        return false;
    }
    /* Touch all memory once, so that it is used memory as in a running guest */
    time_touch(s);
    if (time_discard(s) < 0) {
        return false;
    }
    costs->granule = s->granule / PAGE_SIZE;
    costs->fault = time_touch(s);
    costs->test = time_clear(s, 0);
    costs->clear = time_clear(s, 0x5a);
    full = time_discard(s);
    empty = time_discard(s);
    if (full < 0 || empty < 0) {
        return false;
    }
    costs->discard_call = empty;
    costs->discard = measure_beyond(full, empty) / (s->slice / PAGE_SIZE);

    empty = time_remap(s, false);
    full = empty < 0 ? -1 : time_remap(s, true);
    if (full < 0) {
        return false;
    }
    costs->remap_call = empty;
    costs->remap = measure_beyond(full, empty) / (s->map.len / PAGE_SIZE);
    return true;
}

/*
 * Never use hugepages as scratch: another guest may be about to touch them, and
 * a missing page, for instance because of a cgroup's limit, is a SIGBUS.
 * Nearly all of such a fault is clearing.  The costs of discarding a hugepage,
 * and of a fresh file, were measured on a virtual machine (AMD EPYC, Linux
 * 6.18).
 */
static void derive_hugetlb(MemoryCosts *costs)
{
    uint32_t granule = HUGE_SIZE / PAGE_SIZE;

    if (costs->granule == 1) {
        costs->fault = granule * (costs->test + costs->clear);
    } else {
        costs->fault *= granule / costs->granule;
    }
    costs->granule = granule;
    costs->discard_call = 2500;
    costs->discard = 1300.0 / granule;
    costs->remap_call = 60000;
    costs->remap = 1300.0 / granule;
}

bool measure_memory(CostsKind kind, MemoryCosts *costs)
{
    Scratch s = { .deadline = measure_clock() + PATIENCE };
    bool ok;

    /* Locked memory would be populated at once, and stay so */
    if (should_mlock(mlock_state)) {
        return false;
    }
    ok = scratch_map(&s.map, HUGE_SLICES * HUGE_SIZE, kind == COSTS_SHARED);
    if (ok) {
        /* Like ram_block_add(); a refusal is not an error */
        qemu_madvise(s.map.host, s.map.len, QEMU_MADV_HUGEPAGE);
        s.backing = prim_backing(&s.map);
        ok = measure_all(&s, costs);
    }
    scratch_unmap(&s.map);
    if (ok && kind == COSTS_HUGETLB) {
        derive_hugetlb(costs);
    }
    return ok;
}
