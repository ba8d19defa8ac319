/*
 * Measuring: scratch memory, a clock, and statistics of samples
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/memfd.h"
#include "qemu/timer.h"
#include "system/ram-reset/measure/scratch.h"

static void *map_aligned(size_t len, int flags, int fd)
{
    uint8_t *p = mmap(NULL, len + SCRATCH_ALIGN, PROT_NONE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    uint8_t *host = (uint8_t *)QEMU_ALIGN_UP((uintptr_t)p, SCRATCH_ALIGN);

    if (p == MAP_FAILED) {
        return p;
    }
    munmap(host + len, p + SCRATCH_ALIGN - host);
    if (host > p) {
        munmap(p, host - p);
    }
    p = mmap(host, len, PROT_READ | PROT_WRITE, flags | MAP_FIXED, fd, 0);
    if (p == MAP_FAILED) {
        munmap(host, len);
    }
    return p;
}

void scratch_unmap(PrimMap *map)
{
    if (map->host != MAP_FAILED) {
        munmap(map->host, map->len);
    }
    if (map->fd >= 0) {
        close(map->fd);
    }
}

bool scratch_map(PrimMap *map, uint64_t len, bool shared)
{
    *map = (PrimMap) {
        .host = MAP_FAILED,
        .len = len,
        .page_size = qemu_real_host_page_size(),
        .shared = shared,
        .fd = -1,
    };
    if (shared) {
        PrimLimit limit;

        prim_limit_begin(&limit);
        map->fd = qemu_memfd_create("ram-reset-costs", len, false, 0, 0, NULL);
        prim_limit_end(&limit);
    }
    if (shared == (map->fd >= 0)) {
        map->host = map_aligned(len, shared ? MAP_SHARED
                                : MAP_PRIVATE | MAP_ANONYMOUS, map->fd);
    }
    return map->host != MAP_FAILED;
}

void scratch_touch(uint8_t *host, size_t len, size_t step)
{
    for (size_t at = 0; at < len; at += step) {
        qatomic_set(host + at, 0);
    }
}

int64_t measure_clock(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
    return ts.tv_sec * NANOSECONDS_PER_SECOND + ts.tv_nsec;
}

void measure_add(MeasureSamples *samples, int64_t since)
{
    samples->ns[samples->nr++] = measure_clock() - since;
}

static int measure_compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

double measure_median(MeasureSamples *samples)
{
    qsort(samples->ns, samples->nr, sizeof(samples->ns[0]), measure_compare);
    return samples->ns[samples->nr / 2];
}

double measure_beyond(double whole, double part)
{
    return MAX(whole - part, 1);
}
