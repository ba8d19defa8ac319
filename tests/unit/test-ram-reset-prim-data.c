/*
 * Unit tests for system/ram-reset/prim/memory.c: finding pages with data
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

/* Alone: it takes hugepages of the host without reserving them */

#include "qemu/osdep.h"
#include "emulator.h"
#include "maps.h"
#include "wrap.h"

/* PAGEMAP_SCAN is missing, or the test hides it */
static bool no_pagemap_scan;

int __wrap_ioctl(int fd, unsigned long request, void *arg)
{
    int ret = no_pagemap_scan ? -1 : __real_ioctl(fd, request, arg);

    if (ret < 0 && (no_pagemap_scan || errno == ENOTTY)) {
        no_pagemap_scan = true;
        errno = ENOTTY;
    }
    return ret;
}

static blkcnt_t blocks(const PrimMap *map)
{
    struct stat st;

    g_assert_cmpint(fstat(map->fd, &st), ==, 0);
    return st.st_blocks;
}

typedef struct Found {
    bool pages[PAGES];
    unsigned ranges, cut;           /* @cut: of @ranges, end before @to */
    uint64_t calls;
} Found;

/* The data in pages [@from, @to) */
static Found find(const PrimMap *map, size_t from, size_t to)
{
    size_t page = map->page_size;
    uint64_t start, end, last = from * page, calls = *map->calls;
    Found found = { 0 };
    PrimDataIter it;

    prim_data_begin(&it, map, prim_backing(map), from * page, to * page);
    while (prim_data_next(&it, &start, &end)) {
        g_assert_cmpuint(start, >=, last);
        g_assert_cmpuint(start, <, end);
        g_assert_cmpuint(end, <=, to * page);
        memset(found.pages + start / page, true,
               (end + page - 1) / page - start / page);
        found.ranges++;
        found.cut += end < to * page;
        last = end;
    }
    g_assert_false(prim_data_next(&it, &start, &end));
    prim_data_end(&it);
    found.calls = *map->calls - calls;
    return found;
}

/* Number of system calls for @asked pages of @map */
static uint64_t calls_to_find(Kind kind, const PrimMap *map, unsigned asked,
                              const Found *found)
{
    unsigned seeks;

    switch ((int)kind) {
    case MEMFD:                     /* two lseek, one finds no more */
        seeks = 2 * found->ranges + (found->cut == found->ranges);
        if (asked < PAGES) {
            return seeks;
        }
        /* open, ioctl, (pread,) close, and fstat if there is any range */
        return no_pagemap_scan ? 4 + seeks : found->ranges ? 4 : 3 + seeks;
    case ANON:
    case MEMFD_PRIVATE:             /* pagemap: open, ioctl, (pread,) close */
        return prim_backing(map) == PRIM_PRIVATE_ZERO ? 3 + no_pagemap_scan : 0;
    case ANON | HUGE:               /* mincore */
        return 1;
    case MEMFD_PRIVATE | HUGE:      /* and fstat */
        return 2;
    case MEMFD | HUGE:              /* fstat three times, once if it is full */
        return (size_t)blocks(map) * 512 == map->len ? 1 : 4;
    default:
        return 0;
    }
}

/* A query with any bounds must find each written page */
static void test_data(gconstpointer data)
{
    Kind kind = GPOINTER_TO_INT(data);
    PrimMap *map = map_new(kind);
    GRand *rand = g_rand_new_with_seed(2);
    bool written[PAGES] = { false };

    if (kind == ANON && emulator_lacks("a pagemap of its own addresses")) {
        return;
    }
    for (unsigned round = 0; map && round < 300; round++) {
        size_t pages = map->len / map->page_size;
        size_t from = g_rand_int_range(rand, 0, pages);
        size_t to = g_rand_int_range(rand, from + 1, pages + 1);
        Found found;

        if (round % 10 == 9) {
            size_t page = g_rand_int_range(rand, 0, pages);

            map->host[page * map->page_size] = 1;
            written[page] = true;
        }
        found = find(map, from, to);
        for (size_t i = from; i < to; i++) {
            g_assert_true(found.pages[i] || !written[i]);
            /* No other page is reported if the kernel can distinguish them */
            g_assert_true(found.pages[i] == written[i] ||
                          !(kind & HUGE || kind == ANON || kind == MEMFD));
        }
        g_assert_cmpuint(found.calls, ==,
                         calls_to_find(kind, map, to - from, &found));
        if (kind == MEMFD && round < 9) {
            g_assert_cmpint(blocks(map), ==, 0);
        }
    }
    g_rand_free(rand);
    if (map) {
        map_free(map);
    }
}

static void test_data_without_scan(gconstpointer data)
{
    bool had = no_pagemap_scan;

    no_pagemap_scan = true;
    test_data(data);
    no_pagemap_scan = had;
}

/* The file has more pages than the page table after others have written */
static void test_data_of_others(void)
{
    PrimMap *map = map_new(MEMFD);
    Found found;

    map->host[5 * base_size()] = 1;
    g_assert_cmpint(pwrite(map->fd, "x", 1, 40 * base_size()), ==, 1);
    for (unsigned i = 0; i < 2; i++) {
        found = find(map, 0, PAGES);
        g_assert_true(found.pages[5] && found.pages[40]);
        g_assert_cmpuint(found.ranges, ==, 2);
        /* The page table has all pages: a read has added them */
        g_assert_cmpuint(found.calls, ==, no_pagemap_scan || !i ? 4 + 5 : 4);
        g_assert_cmpint(map->host[40 * base_size()], ==, 'x');
    }
    map_free(map);
}

/* Ranges for several calls, and bounds inside a page */
static void test_data_many_ranges(void)
{
    size_t pages = 10000, base = base_size(), wanted = 0, start = base / 2;
    uint64_t calls = 0, from, to, had = 0;
    PrimMap map = {
        .len = pages * base, .page_size = base, .fd = -1, .calls = &calls,
        .host = mmap(NULL, pages * base, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0),
    };
    g_autofree PrimDataIter *it = g_new(PrimDataIter, 1);

    if (emulator_lacks("a pagemap of its own addresses")) {
        return;
    }
    g_assert_true(map.host != MAP_FAILED);
    madvise(map.host, map.len, MADV_NOHUGEPAGE);
    for (size_t i = 0; i < pages; i += 2) {
        map.host[i * base] = 1;
        /*
         * A page that was only read has no data, if the kernel can distinguish
         * it
         */
        if (!no_pagemap_scan && i % 7 == 0) {
            g_assert_cmpint(map.host[(i + 1) * base], ==, 0);
        }
    }
    prim_data_begin(it, &map, PRIM_PRIVATE_ZERO, start, map.len - 1);
    while (prim_data_next(it, &from, &to)) {
        g_assert_cmpuint(from, ==, wanted ? 2 * wanted * base : start);
        g_assert_cmpuint(to, ==, (2 * wanted + 1) * base);
        wanted++;
        had += to - from;
    }
    prim_data_end(it);
    g_assert_cmpuint(wanted, ==, pages / 2);
    g_assert_cmpuint(had, ==, pages / 2 * base - start);
    if (!no_pagemap_scan) {
        g_assert_cmpuint(calls, ==, 2 + (wanted + 1364) / 1365);
    }
    munmap(map.host, map.len);
}

/* mincore() reports all pages as present to a user without write access */
static void test_data_after_setuid(void)
{
    PrimMap *map = map_new(MEMFD | HUGE);
    int status;

    if (!map || geteuid()) {
        g_test_skip("this takes root, and hugepages of 2 MiB");
        return;
    }
    map->host[map->page_size] = 1;
    g_assert_cmpint(fchmod(map->fd, 0600), ==, 0);
    g_assert_cmpint(fchown(map->fd, 1, 1), ==, 0);
    if (fork() == 0) {
        PrimDataIter it;
        uint64_t start, end;
        bool ok;

        g_assert_cmpint(setresuid(65534, 65534, 65534), ==, 0);
        prim_data_begin(&it, map, PRIM_SHARED_FILE, 0, map->len);
        ok = prim_data_next(&it, &start, &end) && start == map->page_size &&
             end == 2 * map->page_size && !prim_data_next(&it, &start, &end);
        _exit(!ok);
    }
    wait(&status);
    g_assert_cmpint(status, ==, 0);
    map_free(map);
}

/* lseek() succeeds there, and always returns 0 */
static void test_data_of_a_character_device_ends(void)
{
    size_t page = base_size();
    PrimMap map = { .len = 8 * page, .page_size = page, .shared = true };
    PrimDataIter it;
    uint64_t start, end;

    map.fd = open("/dev/zero", O_RDWR | O_CLOEXEC);
    g_assert_cmpint(map.fd, >=, 0);
    map.host = mmap(NULL, map.len, PROT_READ | PROT_WRITE, MAP_SHARED,
                    map.fd, 0);
    g_assert_true(map.host != MAP_FAILED);
    g_assert_cmpint(prim_backing(&map), ==, PRIM_SHARED_OTHER);
    prim_data_begin(&it, &map, PRIM_SHARED_FILE, page, map.len);
    g_assert_true(prim_data_next(&it, &start, &end));
    g_assert_cmpuint(start, ==, page);
    g_assert_cmpuint(end, ==, map.len);
    g_assert_false(prim_data_next(&it, &start, &end));
    prim_data_end(&it);
    munmap(map.host, map.len);
    close(map.fd);
}

/* A page of another process is in the file, but not in the page table */
static void test_data_finds_hugepages_of_others(void)
{
    PrimMap *map = map_new(MEMFD | HUGE);
    uint8_t *other;
    Found found;

    if (!map) {
        return;
    }
    other = mmap(NULL, map->len, PROT_READ | PROT_WRITE, MAP_SHARED,
                 map->fd, 0);
    g_assert_true(other != MAP_FAILED);
    other[2 * HUGE_SIZE + 12345] = 1;
    map->host[0] = 1;
    found = find(map, 1, 4);
    g_assert_true(!found.pages[1] && found.pages[2] && !found.pages[3]);
    /* A file without holes has only data, and needs no other call */
    memset(other, 1, map->len);
    found = find(map, 1, 4);
    g_assert_true(found.pages[1] && found.pages[2] && found.pages[3]);
    g_assert_cmpuint(found.calls, ==, 1);
    g_assert_cmpint(prim_discard(map, PRIM_SHARED_FILE, HUGE_SIZE, HUGE_SIZE),
                    ==, 0);
    found = find(map, 0, 4);
    g_assert_true(found.pages[0] && !found.pages[1] && found.pages[2]);
    munmap(other, map->len);
    map_free(map);
}

/* More pages than one call of mincore() reports */
static void test_data_of_many_hugepages(void)
{
    PrimDataIter it;
    /* Hugepages in the result of a call, which has a byte for each base page */
    unsigned each = sizeof(it.buf) * base_size() / HUGE_SIZE;
    unsigned nr = each + 6, n = 0;
    unsigned expected[][2] = { { 0, 1 }, { each - 2, each + 1 },
                               { nr - 1, nr } };
    uint64_t calls = 0, start, end;
    PrimMap map = { .len = nr * HUGE_SIZE, .page_size = HUGE_SIZE,
                    .shared = true, .noreserve = true, .calls = &calls };
    PrimMap *probe = map_new(MEMFD | HUGE);

    if (!probe) {
        return;
    }
    map_free(probe);
    map.fd = memfd_create("many", MFD_CLOEXEC | MFD_HUGETLB | HUGE_FLAG);
    g_assert_cmpint(map.fd, >=, 0);
    g_assert_cmpint(ftruncate(map.fd, map.len), ==, 0);
    map.host = mmap(NULL, map.len, PROT_READ | PROT_WRITE,
                    MAP_SHARED | MAP_NORESERVE, map.fd, 0);
    g_assert_true(map.host != MAP_FAILED);
    for (unsigned i = 0; i < G_N_ELEMENTS(expected); i++) {
        for (unsigned page = expected[i][0]; page < expected[i][1]; page++) {
            map.host[page * HUGE_SIZE + 12345] = 1;
        }
    }
    g_assert_true(prim_data_begin(&it, &map, prim_backing(&map), 0, map.len));
    while (prim_data_next(&it, &start, &end)) {
        g_assert_cmpuint(n, <, G_N_ELEMENTS(expected));
        g_assert_cmpuint(start, ==, expected[n][0] * HUGE_SIZE);
        g_assert_cmpuint(end, ==, expected[n][1] * HUGE_SIZE);
        n++;
    }
    prim_data_end(&it);
    g_assert_cmpuint(n, ==, G_N_ELEMENTS(expected));
    /* fstat three times */
    g_assert_cmpuint(calls, ==, 3 + 2);
    munmap(map.host, map.len);
    close(map.fd);
}

static void add(const char *name, Kind kind)
{
    g_autofree char *path = g_strdup_printf("/prim/data/%s", name);

    g_test_add_data_func(path, GINT_TO_POINTER(kind), test_data);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/prim/data/many-hugepages", test_data_of_many_hugepages);
    g_test_add_data_func("/prim/data/anon-without-scan", GINT_TO_POINTER(ANON),
                         test_data_without_scan);
    g_test_add_data_func("/prim/data/memfd-without-scan",
                         GINT_TO_POINTER(MEMFD), test_data_without_scan);
    g_test_add_func("/prim/data/of-others", test_data_of_others);
    g_test_add_func("/prim/data/many-ranges", test_data_many_ranges);
    g_test_add_func("/prim/data/after-setuid", test_data_after_setuid);
    g_test_add_func("/prim/data/of-a-character-device-ends",
                    test_data_of_a_character_device_ends);
    g_test_add_func("/prim/data/finds-hugepages-of-others",
                    test_data_finds_hugepages_of_others);
    add("anon", ANON);
    add("memfd", MEMFD);
    add("memfd-private", MEMFD_PRIVATE);
    add("shared-anon", SHARED_ANON);
    add("file-private", FILE_PRIVATE);
    add("anon-huge", ANON | HUGE);
    add("memfd-huge", MEMFD | HUGE);
    add("memfd-private-huge", MEMFD_PRIVATE | HUGE);
    return g_test_run();
}
