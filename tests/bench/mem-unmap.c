/*
 * The cost of unmapping pages, one by one or many at a time
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "mem-bench.h"

typedef struct Area {
    uint8_t *host;
    size_t len;
    int fd;
} Area;

static int by_munmap(const Area *area, size_t start, size_t len)
{
    return munmap(area->host + start, len);
}

static int by_dontneed(const Area *area, size_t start, size_t len)
{
    return madvise(area->host + start, len, MADV_DONTNEED);
}

static int by_mmap(const Area *area, size_t start, size_t len)
{
    void *p = mmap(area->host + start, len, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);

    return p == MAP_FAILED ? -1 : 0;
}

static int by_punch(const Area *area, size_t start, size_t len)
{
    return fallocate(area->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                     start, len);
}

static const struct {
    const char *name;
    int (*unmap)(const Area *area, size_t start, size_t len);
    bool shared;
} ways[] = {
    { "munmap", by_munmap, false },
    { "dontneed", by_dontneed, false },
    { "mmap", by_mmap, false },
    { "punch", by_punch, true },
    { "memfd-dontneed", by_dontneed, true },
};

static Area map_area(size_t len, bool shared)
{
    Area area = { .len = len, .fd = -1 };

    if (!shared) {
        area.host = map_private(len, false);
        return area;
    }
    area.fd = memfd_create("mem-bench", MFD_CLOEXEC);
    if (area.fd < 0 || ftruncate(area.fd, len) < 0) {
        die("create a memfd");
    }
    area.host = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, area.fd, 0);
    if (area.host == MAP_FAILED) {
        die("map a memfd");
    }
    madvise(area.host, len, MADV_NOHUGEPAGE);
    return area;
}

static void measure(unsigned way, size_t pages, size_t batch)
{
    Area area = map_area(MAX(pages, batch) * PAGE, ways[way].shared);
    double start;

    populate(area.host, area.len);
    start = now_ms();
    for (size_t i = 0; i < area.len; i += batch * PAGE) {
        if (ways[way].unmap(&area, i, batch * PAGE) < 0) {
            die(ways[way].name);
        }
    }
    printf("{\"way\": \"%s\", \"batch\": %zu, \"ns_per_page\": %.3f}\n",
           ways[way].name, batch,
           (now_ms() - start) * 1e6 / (area.len / PAGE));
    munmap(area.host, area.len);
    if (area.fd >= 0) {
        close(area.fd);
    }
}

void run_unmap(char **args)
{
    static const size_t batches[] = { 1, 16, 256, 4096, 65536 };
    /* a multiple of all batches that are not above it */
    size_t pages = number(args[0], 4096, 1 << 20) & ~(size_t)4095;
    unsigned round = number(args[1], 0, G_MAXUINT32);

    for (unsigned b = 0; b < G_N_ELEMENTS(batches); b++) {
        for (unsigned w = 0; w < G_N_ELEMENTS(ways); w++) {
            measure((w + round) % G_N_ELEMENTS(ways), pages, batches[b]);
        }
    }
}
