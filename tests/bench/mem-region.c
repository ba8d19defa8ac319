/*
 * The cost of making a region zero, with the faults that follow
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "mem-bench.h"
#include "system/ram-reset/prim/prim.h"

/* A byte of each page that is marked before the reset, to see the reset */
#define MARK_AT 64
#define MARK    0xa5

static size_t touched_page(const PrimMap *map, size_t i, size_t n)
{
    size_t pages = map->len / map->page_size;

    return i * pages / n * map->page_size;
}

static void zero_memset(const PrimMap *map, G_GNUC_UNUSED size_t n)
{
    memset(map->host, 0, map->len);
}

static void zero_stream(const PrimMap *map, G_GNUC_UNUSED size_t n)
{
    prim_clear(map->host, map->len);
    prim_clear_fence();
}

static void zero_dirty(const PrimMap *map, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        prim_clear(map->host + touched_page(map, i, n), map->page_size);
    }
    prim_clear_fence();
}

static void zero_discard(const PrimMap *map, G_GNUC_UNUSED size_t n)
{
    int ret = prim_discard(map, prim_backing(map), 0, map->len);

    if (ret < 0) {
        errno = -ret;
        die("discard memory");
    }
}

/* prim has no fresh mapping of such memory, as QEMU has none of it */
static void fresh_private_hugetlb(const PrimMap *map)
{
    if (mmap(map->host, map->len, PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | MAP_FIXED, -1,
             0) == MAP_FAILED) {
        die("map fresh hugepages");
    }
}

static void zero_fresh(const PrimMap *map, G_GNUC_UNUSED size_t n)
{
    PrimFresh fresh;
    int ret;

    if (!map->shared && map->page_size == HUGE) {
        fresh_private_hugetlb(map);
        return;
    }
    ret = prim_fresh_map(map, &fresh);
    if (ret == 0) {
        ret = prim_fresh_swap(map, &fresh);
    }
    if (ret < 0) {
        errno = -ret;
        die("map fresh memory");
    }
    if (map->page_size == PAGE) {
        madvise(map->host, map->len, MADV_NOHUGEPAGE);
    }
}

/* A strategy that keeps pages has all of them in either state */
static const struct {
    const char *name;
    void (*zero)(const PrimMap *map, size_t n);
    bool keeps;
} ways[] = {
    { "memset", zero_memset, true },
    { "stream", zero_stream, true },
    { "dirty", zero_dirty, true },
    { "discard", zero_discard, false },
    { "fresh", zero_fresh, false },
};

/*
 * Before the reset @n pages are written; @resident: the others are in memory
 * as well, being left from an earlier use.  Otherwise they are not, as it is
 * when the way that is measured has been used before.
 */
static void prepare(const PrimMap *map, bool resident, size_t n)
{
    if (resident) {
        populate(map->host, map->len);
    } else {
        zero_discard(map, n);
    }
    for (size_t i = 0; i < n; i++) {
        uint8_t *page = map->host + touched_page(map, i, n);

        page[0] = MARK;
        page[MARK_AT] = MARK;
    }
}

static void touch(const PrimMap *map, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        map->host[touched_page(map, i, n)] = 1;
    }
}

static void check(const PrimMap *map, size_t n, const char *way)
{
    for (size_t i = 0; i < n; i++) {
        if (map->host[touched_page(map, i, n) + MARK_AT]) {
            fprintf(stderr, "mem-bench: %s has left a page as it was\n", way);
            exit(1);
        }
    }
}

static void measure(const PrimMap *map, unsigned way, bool resident,
                    unsigned percent)
{
    size_t n = (map->len / map->page_size * percent + 99) / 100;
    double start, zeroed, end;

    prepare(map, resident, n);
    start = now_ms();
    ways[way].zero(map, n);
    zeroed = now_ms();
    touch(map, n);
    end = now_ms();
    check(map, n, ways[way].name);
    printf("{\"way\": \"%s\", \"resident\": %s, \"percent\": %u, "
           "\"reset_ms\": %.5f, \"touch_ms\": %.5f}\n",
           ways[way].name, resident ? "true" : "false", percent,
           zeroed - start, end - zeroed);
}

static PrimMap map_shared(size_t len, bool hugetlb)
{
    PrimMap map = { .len = len, .shared = true };

    map.fd = memfd_create("mem-bench",
                          MFD_CLOEXEC | (hugetlb ? MFD_HUGETLB : 0));
    if (map.fd < 0 || ftruncate(map.fd, len) < 0) {
        die("create a memfd");
    }
    map.host = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, map.fd, 0);
    if (map.host == MAP_FAILED && hugetlb) {
        skip("there are too few free hugepages");
    }
    if (map.host == MAP_FAILED) {
        die("map a memfd");
    }
    if (!hugetlb) {
        madvise(map.host, len, MADV_NOHUGEPAGE);
    }
    return map;
}

static PrimMap map_region(const char *kind, size_t len)
{
    PrimMap map = { .len = len, .fd = -1 };
    bool hugetlb = g_str_has_prefix(kind, "hugetlb");

    if (g_str_has_suffix(kind, "memfd")) {
        map = map_shared(len, hugetlb);
    } else {
        map.host = map_private(len, hugetlb);
    }
    map.page_size = hugetlb ? HUGE : PAGE;
    return map;
}

void run_region(char **args)
{
    static const char *const kinds[] = {
        "anonymous", "memfd", "hugetlb", "hugetlb-memfd", NULL
    };
    static const unsigned percents[] = { 0, 1, 10, 25, 50, 100 };
    size_t len = number(args[1], 2, 1 << 20) * MIB & -HUGE;
    unsigned round = number(args[2], 0, G_MAXUINT32);
    PrimMap map;

    if (!g_strv_contains(kinds, args[0])) {
        refuse("there is no kind of memory '%s'", args[0]);
    }
    map = map_region(args[0], len);
    /* what was measured before leaves its mark on which memory is free */
    for (unsigned i = 0; i < G_N_ELEMENTS(percents); i++) {
        unsigned p = (i + round) % G_N_ELEMENTS(percents);

        for (unsigned w = 0; w < G_N_ELEMENTS(ways); w++) {
            unsigned way = (w + round) % G_N_ELEMENTS(ways);

            measure(&map, way, true, percents[p]);
            if (!ways[way].keeps) {
                measure(&map, way, false, percents[p]);
            }
        }
    }
}
