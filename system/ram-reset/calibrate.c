/*
 * ram-reset-auto: what things cost on this host
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include <math.h>
#include "qemu/timer.h"
#include "qemu/madvise.h"
#include "qemu/memfd.h"
#include "system/kvm.h"
#include "system/system.h"
#include "system/ram-reset/block/clear.h"
#include "calibrate.h"
#include "internal.h"
#include "prim-kvm.h"
#ifdef __SSE2__
#include <emmintrin.h>
#endif

#define PAGE_SIZE   4096
#define HUGE_SIZE   (2 * MiB)
#define CACHE_LINE  64

/* Medians of so many parts of the scratch memory: hosts are noisy */
#define SLICES      8
#define SLICE       (128 * KiB)
#define HUGE_SLICES 4

#define GUEST_PAGES 128

/*
 * About what is published for faults and lost mappings on hosts with EPT; none
 * of it has been measured here.
 */
static const GuestCosts assumed = { .fault = 1500, .map = 1500, .unmap = 200 };
#define ASSUMED_WRITE_FAULT 1500

/* For one kind of memory, in ns of CPU time; then a few samples have to do */
#define PATIENCE    5000000
#define FEW_SLICES  3

typedef struct Scratch {
    PrimMap map;
    PrimBacking backing;
    size_t slice, nr;
    size_t granule;             /* bytes */
    int64_t deadline;
} Scratch;

typedef struct Samples {
    double ns[SLICES];
    unsigned nr;
} Samples;

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* Of this thread: others may take the CPU for a while */
static int64_t cpu_clock(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
    return ts.tv_sec * NANOSECONDS_PER_SECOND + ts.tv_nsec;
}

static void add_sample(Samples *samples, int64_t since)
{
    samples->ns[samples->nr++] = cpu_clock() - since;
}

/* What comes then is about as many slices as this had */
static void hurry(Scratch *s)
{
    if (cpu_clock() > s->deadline) {
        s->nr = MIN(s->nr, FEW_SLICES);
    }
}

static double median(Samples *s)
{
    qsort(s->ns, s->nr, sizeof(s->ns[0]), compare);
    return s->ns[s->nr / 2];
}

/* What is left of @whole when @part is taken off; noise may have it negative */
static double beyond(double whole, double part)
{
    return MAX(whole - part, 1);
}

static void *map_aligned(size_t len, int flags, int fd)
{
    uint8_t *p = mmap(NULL, len + HUGE_SIZE, PROT_NONE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    uint8_t *host = (uint8_t *)QEMU_ALIGN_UP((uintptr_t)p, HUGE_SIZE);

    if (p == MAP_FAILED) {
        return p;
    }
    munmap(host + len, p + HUGE_SIZE - host);
    if (host > p) {
        munmap(p, host - p);
    }
    p = mmap(host, len, PROT_READ | PROT_WRITE, flags | MAP_FIXED, fd, 0);
    if (p == MAP_FAILED) {
        munmap(host, len);
    }
    return p;
}

static void scratch_unmap(Scratch *s)
{
    if (s->map.host != MAP_FAILED) {
        munmap(s->map.host, s->map.len);
    }
    if (s->map.fd >= 0) {
        close(s->map.fd);
    }
}

static bool scratch_map(Scratch *s, bool shared)
{
    s->map = (PrimMap) {
        .host = MAP_FAILED,
        .len = HUGE_SLICES * HUGE_SIZE,
        .page_size = qemu_real_host_page_size(),
        .shared = shared,
        .fd = -1,
    };
    if (shared) {
        PrimLimit limit;

        prim_limit_begin(&limit);
        s->map.fd = qemu_memfd_create("ram-reset-costs", s->map.len, false, 0,
                                      0, NULL);
        prim_limit_end(&limit);
    }
    if (shared == (s->map.fd >= 0)) {
        s->map.host = map_aligned(s->map.len, shared ? MAP_SHARED
                                  : MAP_PRIVATE | MAP_ANONYMOUS, s->map.fd);
    }
    if (s->map.host == MAP_FAILED) {
        scratch_unmap(s);
        return false;
    }
    /* As ram_block_add() does it; refused advice is no failure */
    qemu_madvise(s->map.host, s->map.len, QEMU_MADV_HUGEPAGE);
    s->backing = prim_backing(&s->map);
    return true;
}

static uint8_t *slice(const Scratch *s, unsigned i)
{
    return s->map.host + i * s->slice;
}

/* A 0 is written, so that pages still read as zero */
static void touch(uint8_t *host, size_t len, size_t step)
{
    for (size_t at = 0; at < len; at += step) {
        qatomic_set(host + at, 0);
    }
}

/* How much is there when one byte has been touched; 0 if that is not told */
static uint64_t populated_by_touch(const Scratch *s, size_t at)
{
    g_autofree PrimDataIter *it = g_new(PrimDataIter, 1);
    uint64_t start, end, sum = 0;

    touch(s->map.host + at, 1, 1);
    prim_data_begin(it, &s->map, s->backing, 0, s->map.len);
    while (prim_data_next(it, &start, &end)) {
        sum += end - start;
    }
    prim_data_end(it);
    return sum == s->map.len ? 0 : sum;
}

/* More than once: now and then the kernel has no hugepage at hand */
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
    munmap(slice(s, SLICES), s->map.len - SLICES * SLICE);
    s->map.len = SLICES * SLICE;
    return s->map.fd < 0 || ftruncate(s->map.fd, s->map.len) == 0;
}

/* Memory of a guest has seldom been used a moment ago */
static void flush(uint8_t *host, size_t len)
{
#ifdef __SSE2__
    for (size_t at = 0; at < len; at += CACHE_LINE) {
        _mm_clflush(host + at);
    }
    _mm_mfence();
#endif
}

static double measure_touch(Scratch *s)
{
    Samples samples = { .nr = 0 };

    hurry(s);
    for (unsigned i = 0; i < s->nr; i++) {
        int64_t before = cpu_clock();

        touch(slice(s, i), s->slice, s->granule);
        add_sample(&samples, before);
    }
    return median(&samples) / (s->slice / s->granule);
}

/* For each page of a slice; @value: what is in all of them */
static double measure_clear(Scratch *s, int value)
{
    Samples samples = { .nr = 0 };

    hurry(s);
    for (unsigned i = 0; i < s->nr; i++) {
        g_autoptr(GArray) pieces = g_array_new(false, false,
                                               sizeof(RamResetPiece));
        RamResetPiece piece = { .len = s->slice };
        int64_t before;

        g_array_append_val(pieces, piece);
        memset(slice(s, i), value, s->slice);
        flush(slice(s, i), s->slice);
        before = cpu_clock();
        ram_reset_clear_pieces(slice(s, i), pieces, 1);
        add_sample(&samples, before);
    }
    return median(&samples) / (s->slice / PAGE_SIZE);
}

/* For each slice, populated or not; negative if that is refused */
static double measure_discard(const Scratch *s)
{
    Samples samples = { .nr = 0 };

    for (unsigned i = 0; i < s->nr; i++) {
        int64_t before = cpu_clock();

        if (prim_discard(&s->map, s->backing, i * s->slice, s->slice) < 0) {
            return -1;
        }
        add_sample(&samples, before);
    }
    return median(&samples);
}

/* The fastest of some times that are taken of all the memory at once */
#define TRIES 2

/* For all of it; negative if that is refused */
static double measure_remap(const Scratch *s, bool populated)
{
    double best = INFINITY;

    for (unsigned i = 0; i < TRIES; i++) {
        PrimFresh fresh;
        int64_t before;

        if (populated) {
            touch(s->map.host, s->map.len, s->granule);
        }
        before = cpu_clock();
        if (prim_fresh_map(&s->map, &fresh) < 0 ||
            prim_fresh_swap(&s->map, &fresh) < 0) {
            return -1;
        }
        best = MIN(best, cpu_clock() - before);
        qemu_madvise(s->map.host, s->map.len, QEMU_MADV_HUGEPAGE);
    }
    return best;
}

/* Nothing is touched after a failure: the memory may not be there any more */
static bool measure(Scratch *s, PolicyCosts *costs)
{
    double full, empty;

    if (!find_granule(s) || measure_discard(s) < 0) {
        return false;
    }
    /* Once, so that it has been used before, as that of a running guest has */
    measure_touch(s);
    if (measure_discard(s) < 0) {
        return false;
    }
    costs->granule = s->granule / PAGE_SIZE;
    costs->fault = measure_touch(s);
    costs->test = measure_clear(s, 0);
    costs->clear = measure_clear(s, 0x5a);
    full = measure_discard(s);
    empty = measure_discard(s);
    if (full < 0 || empty < 0) {
        return false;
    }
    costs->discard_call = empty;
    costs->discard = beyond(full, empty) / (s->slice / PAGE_SIZE);

    empty = measure_remap(s, false);
    full = empty < 0 ? -1 : measure_remap(s, true);
    if (full < 0) {
        return false;
    }
    costs->remap_call = empty;
    costs->remap = beyond(full, empty) / (s->map.len / PAGE_SIZE);
    return true;
}

/*
 * Hugepages are not for scratch: they may be what another guest is about to
 * touch, and a page that cannot be had, for a cgroup's limit say, is a SIGBUS.
 * Nearly all of such a fault is clearing; what giving one back costs, and a
 * fresh file, was measured on a virtual machine (AMD EPYC, Linux 6.18).
 */
static void derive_hugetlb(PolicyCosts *costs)
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

bool calibrate(CostsKind kind, PolicyCosts *costs)
{
    Scratch s = { .deadline = cpu_clock() + PATIENCE };
    bool ok;

    /* Locked memory would be all there at once, and stay so */
    if (should_mlock(mlock_state) || !scratch_map(&s, kind == COSTS_SHARED)) {
        return false;
    }
    ok = measure(&s, costs);
    scratch_unmap(&s);
    if (ok && kind == COSTS_HUGETLB) {
        derive_hugetlb(costs);
    }
    return ok;
}

/* Finds @map empty: of its thirds one stays so, and two only QEMU has */
static bool measure_guest(const PrimMap *map, PrimGuest *guest,
                          GuestCosts *costs)
{
    uint64_t third = map->len / 3;
    unsigned count = third / PAGE_SIZE;
    int64_t at[5], with, without;

    /* Once, for what it takes to run at all */
    touch(map->host, PAGE_SIZE, PAGE_SIZE);
    if (prim_guest_touch(guest, 0, PAGE_SIZE, 1) < 0) {
        return false;
    }
    madvise(map->host, PAGE_SIZE, MADV_DONTNEED);
    at[0] = cpu_clock();
    touch(map->host + third, 2 * third, PAGE_SIZE);
    at[1] = cpu_clock();
    if (prim_guest_touch(guest, third, PAGE_SIZE, count) < 0) {
        return false;
    }
    at[2] = cpu_clock();
    if (prim_guest_touch(guest, 0, PAGE_SIZE, count) < 0) {
        return false;
    }
    at[3] = cpu_clock();
    madvise(map->host + third, third, MADV_DONTNEED);
    at[4] = cpu_clock();
    with = at[4] - at[3];
    madvise(map->host + 2 * third, third, MADV_DONTNEED);
    without = cpu_clock() - at[4];
    madvise(map->host, third, MADV_DONTNEED);

    costs->map = (double)(at[2] - at[1]) / count;
    costs->fault = beyond((double)(at[3] - at[2]) / count,
                          (double)(at[1] - at[0]) / (2 * count));
    costs->unmap = beyond(with, without) / count;
    return true;
}

/* The faster of both, each */
static bool measure_guest_twice(const PrimMap *map, PrimGuest *guest,
                                GuestCosts *costs)
{
    GuestCosts again;

    if (!measure_guest(map, guest, costs) ||
        !measure_guest(map, guest, &again)) {
        return false;
    }
    costs->fault = MIN(costs->fault, again.fault);
    costs->map = MIN(costs->map, again.map);
    costs->unmap = MIN(costs->unmap, again.unmap);
    return true;
}

static void scratch_guest_free(PrimMap *map, PrimGuest *guest)
{
    if (guest) {
        prim_guest_free(guest);
    }
    if (map->host != MAP_FAILED) {
        munmap(map->host, map->len);
    }
}

/* NULL if that cannot be had; scratch_guest_free() also then */
static PrimGuest *scratch_guest(PrimMap *map)
{
    map->len = 3 * GUEST_PAGES * PAGE_SIZE;
    map->host = map_aligned(map->len, MAP_PRIVATE | MAP_ANONYMOUS, -1);
    if (map->host == MAP_FAILED) {
        return NULL;
    }
    qemu_madvise(map->host, map->len, QEMU_MADV_NOHUGEPAGE);
    return prim_guest_new(map->host, map->len);
}

GuestCosts calibrate_guest(void)
{
    GuestCosts costs = { 0 };
    PrimGuest *guest;
    PrimMap map;
    bool ok;

    if (!kvm_enabled()) {
        return costs;
    }
    guest = scratch_guest(&map);
    ok = guest && measure_guest_twice(&map, guest, &costs);
    scratch_guest_free(&map, guest);
    return ok ? costs : assumed;
}

/* Negative if that fails */
static double measure_write_fault(const PrimMap *map, PrimGuest *guest)
{
    unsigned count = map->len / PAGE_SIZE;
    double best = INFINITY;

    for (unsigned i = 0; i < TRIES; i++) {
        int64_t before;

        if (prim_guest_touch(guest, 0, PAGE_SIZE, count) < 0 ||
            prim_guest_protect(guest) < 0) {
            return -1;
        }
        before = cpu_clock();
        if (prim_guest_touch(guest, 0, PAGE_SIZE, count) < 0) {
            return -1;
        }
        best = MIN(best, (double)(cpu_clock() - before) / count);
    }
    return best;
}

double calibrate_write_fault(void)
{
    PrimGuest *guest;
    PrimMap map;
    double ns;

    if (!kvm_enabled()) {
        return 0;
    }
    guest = scratch_guest(&map);
    ns = guest ? measure_write_fault(&map, guest) : -1;
    scratch_guest_free(&map, guest);
    return ns < 0 ? ASSUMED_WRITE_FAULT : ns;
}
