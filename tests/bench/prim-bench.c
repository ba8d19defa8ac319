/*
 * What making a region zero costs, the faults that follow included
 *
 * Usage: prim-bench [MiB [rounds]]
 *
 * A region is written all over, made zero in one of several ways, and some
 * of its pages are written again.  The ways take turns, round by round; what
 * is printed are medians in milliseconds, with the fastest and the slowest.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <glib.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
#include "../../system/ram-reset/prim.h"

#define MAX_ROUNDS 101

static void way_memset(const PrimMap *map)
{
    memset(map->host, 0, map->len);
}

static void way_stream(const PrimMap *map)
{
    prim_clear(map->host, map->len);
    prim_clear_fence();
}

static void way_drop(const PrimMap *map)
{
    int ret = prim_drop(map, prim_backing(map), 0, map->len);

    if (ret < 0) {
        fprintf(stderr, "prim-bench: cannot drop: %s\n", strerror(-ret));
        exit(1);
    }
}

static const struct {
    const char *name;
    void (*zero)(const PrimMap *map);
} ways[] = {
    { "memset", way_memset },
    { "streaming", way_stream },
    { "drop", way_drop },
};

static double now_ms(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return ts.tv_sec * 1e3 + ts.tv_nsec / 1e6;
}

/* One byte in every page, spread so that @percent of the pages are met */
static void touch(const PrimMap *map, unsigned percent)
{
    size_t pages = map->len / map->page_size;
    size_t n = pages * percent / 100;

    for (size_t i = 0; i < n; i++) {
        map->host[i * pages / n * map->page_size] = 1;
    }
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static void bench(const char *name, const PrimMap *map, unsigned percent,
                  unsigned rounds)
{
    static double ms[G_N_ELEMENTS(ways)][MAX_ROUNDS];

    for (unsigned r = 0; r < rounds; r++) {
        for (unsigned w = 0; w < G_N_ELEMENTS(ways); w++) {
            double start;

            memset(map->host, 0xa5, map->len);
            start = now_ms();
            ways[w].zero(map);
            touch(map, percent);
            ms[w][r] = now_ms() - start;
        }
    }
    printf("%-12s %3u %%", name, percent);
    for (unsigned w = 0; w < G_N_ELEMENTS(ways); w++) {
        qsort(ms[w], rounds, sizeof(double), compare);
        printf("  %s %.2f (%.2f-%.2f)", ways[w].name, ms[w][rounds / 2],
               ms[w][0], ms[w][rounds - 1]);
    }
    printf("\n");
    fflush(stdout);
}

static bool region(PrimMap *map, size_t len, size_t page_size, bool shared)
{
    int huge = page_size > (size_t)getauxval(AT_PAGESZ);

    *map = (PrimMap) { .len = len, .page_size = page_size, .fd = -1,
                       .shared = shared };
    if (shared) {
        map->fd = memfd_create("prim-bench",
                               MFD_CLOEXEC | (huge ? MFD_HUGETLB : 0));
        if (map->fd < 0 || ftruncate(map->fd, len) < 0) {
            return false;
        }
    }
    map->host = mmap(NULL, len, PROT_READ | PROT_WRITE,
                     shared ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS |
                     (huge ? MAP_HUGETLB : 0), map->fd, 0);
    if (map->host != MAP_FAILED && !huge) {
        madvise(map->host, len, MADV_NOHUGEPAGE);
    }
    return map->host != MAP_FAILED;
}

int main(int argc, char **argv)
{
    size_t len = (argc > 1 ? g_ascii_strtoull(argv[1], NULL, 10) : 256) << 20;
    unsigned rounds = argc > 2 ? g_ascii_strtoull(argv[2], NULL, 10) : 7;
    static const unsigned percents[] = { 0, 1, 10, 50, 100 };
    static const struct {
        const char *name;
        size_t page_size;
        bool shared;
    } kinds[] = {
        { "anonymous", 4096, false },
        { "memfd", 4096, true },
        { "hugetlb", 2 << 20, false },
        { "hugetlb memfd", 2 << 20, true },
    };

    if (!len || !rounds || rounds > MAX_ROUNDS) {
        fprintf(stderr, "Usage: prim-bench [MiB [rounds, 1 to %d]]\n",
                MAX_ROUNDS);
        return 2;
    }
    printf("%zu MiB, medians of %u rounds in ms (fastest-slowest); pages "
           "touched again in %%\n", len >> 20, rounds);
    for (unsigned k = 0; k < G_N_ELEMENTS(kinds); k++) {
        PrimMap map;

        if (!region(&map, len, kinds[k].page_size, kinds[k].shared)) {
            printf("%-12s left out: not enough 2 MiB hugepages "
                   "(vm.nr_hugepages)\n", kinds[k].name);
            continue;
        }
        for (unsigned i = 0; i < G_N_ELEMENTS(percents); i++) {
            bench(kinds[k].name, &map, percents[i], rounds);
        }
        munmap(map.host, map.len);
        if (map.fd >= 0) {
            close(map.fd);
        }
    }
    return 0;
}
