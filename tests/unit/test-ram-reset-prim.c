/*
 * Unit tests for system/ram-reset/prim/memory.c
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

/* Alone: it counts hugepages of the host */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include "system/ram-reset/prim/prim.h"
#include "emulator.h"
#include "wrap.h"

#define PAGES 64
#define HUGE_SIZE ((size_t)2 * 1024 * 1024)
/* The kernel's own size may be another */
#define HUGE_FLAG (21 << MAP_HUGE_SHIFT)

typedef enum {
    ANON, MEMFD, MEMFD_PRIVATE, SHARED_ANON, FILE_PRIVATE, HUGE = 8
} Kind;

/* PAGEMAP_SCAN is missing, or we have it so */
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

static size_t base_size(void)
{
    return getauxval(AT_PAGESZ);
}

static int disk_file(size_t len)
{
    g_autofree char *name = NULL;
    int fd = g_file_open_tmp("ram-reset-XXXXXX", &name, NULL);

    g_assert_cmpint(fd, >=, 0);
    unlink(name);
    g_assert_cmpint(ftruncate(fd, len), ==, 0);
    return fd;
}

static void map_free(PrimMap *map)
{
    if (map->host != MAP_FAILED) {
        munmap(map->host, map->len);
    }
    if (map->fd >= 0) {
        close(map->fd);
    }
    g_free(map->calls);
    g_free(map);
}

/* NULL, and the test is skipped, if the host has no memory of that kind */
static PrimMap *map_new(Kind kind)
{
    PrimMap *map = g_new0(PrimMap, 1);
    bool huge = kind & HUGE;
    int anon = 0;

    kind &= ~HUGE;
    map->page_size = huge ? HUGE_SIZE : base_size();
    map->len = huge ? 4 * HUGE_SIZE : PAGES * base_size();
    map->shared = kind == MEMFD || kind == SHARED_ANON;
    map->fd = -1;
    map->calls = g_new0(uint64_t, 1);
    if (kind == ANON || kind == SHARED_ANON) {
        anon = MAP_ANONYMOUS | (huge ? MAP_HUGETLB | HUGE_FLAG : 0);
    } else if (kind == FILE_PRIVATE) {
        map->fd = disk_file(map->len);
    } else {
        map->fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING |
                                      (huge ? MFD_HUGETLB | HUGE_FLAG : 0));
        g_assert_true(map->fd < 0 || ftruncate(map->fd, map->len) == 0);
    }
    map->host = mmap(NULL, map->len, PROT_READ | PROT_WRITE, anon |
                     (map->shared ? MAP_SHARED : MAP_PRIVATE), map->fd, 0);
    if (map->host == MAP_FAILED) {
        g_test_skip("no 2 MiB hugepages: set vm.nr_hugepages to 64 or more");
        map_free(map);
        return NULL;
    }
    return map;
}

static bool is_zero(const uint8_t *p, size_t len)
{
    return !p[0] && !memcmp(p, p + 1, len - 1);
}

static void test_backing(void)
{
    static const struct {
        Kind kind;
        PrimBacking backing;
    } cases[] = {
        { ANON, PRIM_PRIVATE_ZERO },
        { MEMFD, PRIM_SHARED_FILE },
        { MEMFD_PRIVATE, PRIM_PRIVATE_ZERO },
        { SHARED_ANON, PRIM_SHARED_OTHER },
        /* Empty, but on a disk: its block count proves nothing */
        { FILE_PRIVATE, PRIM_PRIVATE_FILE },
    };

    for (unsigned i = 0; i < G_N_ELEMENTS(cases); i++) {
        PrimMap *map = map_new(cases[i].kind);

        g_assert_cmpint(prim_backing(map), ==, cases[i].backing);
        map_free(map);
    }
}

static void test_backing_memfd_with_data(void)
{
    PrimMap *map = map_new(MEMFD_PRIVATE);

    g_assert_cmpint(pwrite(map->fd, "x", 1, 0), ==, 1);
    g_assert_cmpint(prim_backing(map), ==, PRIM_PRIVATE_FILE);
    map_free(map);
}

/*
 * A fault in a private mapping of tmpfs puts a page into the file as well,
 * which looks just like a page that somebody has written.
 */
static void test_backing_memfd_private_once_touched(void)
{
    PrimMap *map = map_new(MEMFD_PRIVATE);

    map->host[0] = 1;
    g_assert_cmpint(prim_backing(map), ==, PRIM_PRIVATE_FILE);
    map_free(map);
}

static void test_drop_refuses_private_file(void)
{
    PrimMap *map = map_new(FILE_PRIVATE);

    memset(map->host, 7, map->len);
    g_assert_cmpint(prim_discard(map, prim_backing(map), 0, map->len), ==,
                    -EINVAL);
    g_assert_cmpint(map->host[0], ==, 7);
    g_assert_cmpint(map->host[map->len - 1], ==, 7);
    map_free(map);
}

static void test_drop(gconstpointer kind)
{
    PrimMap *map = map_new(GPOINTER_TO_INT(kind));
    size_t page;

    if (!map || (GPOINTER_TO_INT(kind) == SHARED_ANON &&
                 emulator_lacks("MADV_REMOVE"))) {
        return;
    }
    page = map->page_size;
    memset(map->host, 0xa5, map->len);
    g_assert_cmpint(prim_discard(map, prim_backing(map), page, 2 * page),
                    ==, 0);
    /* fallocate or madvise; mmap and munmap to reserve hugepages again */
    g_assert_cmpuint(*map->calls, ==,
                     GPOINTER_TO_INT(kind) == (MEMFD | HUGE) ? 3 : 1);
    g_assert_true(is_zero(map->host + page, 2 * page));
    g_assert_cmpint(map->host[page - 1], ==, 0xa5);
    g_assert_cmpint(map->host[3 * page], ==, 0xa5);
    map_free(map);
}

/* Whoever else maps the memory must see the zeros, too */
static void test_drop_is_seen_by_others(void)
{
    PrimMap *map = map_new(MEMFD);
    uint8_t *other = mmap(NULL, map->len, PROT_READ, MAP_SHARED, map->fd, 0);

    g_assert_true(other != MAP_FAILED);
    memset(map->host, 1, map->len);
    g_assert_cmpint(other[0], ==, 1);
    g_assert_cmpint(prim_discard(map, prim_backing(map), 0, map->len), ==, 0);
    g_assert_true(is_zero(other, map->len));
    munmap(other, map->len);
    map_free(map);
}

static void test_drop_honours_fd_offset(void)
{
    PrimMap *map = map_new(MEMFD);
    size_t page = base_size();
    PrimMap part = *map;

    part.host = mmap(NULL, 4 * page, PROT_READ | PROT_WRITE, MAP_SHARED,
                     map->fd, 8 * page);
    part.len = 4 * page;
    part.fd_offset = 8 * page;
    memset(map->host, 3, map->len);
    g_assert_cmpint(prim_discard(&part, prim_backing(&part), page, page),
                    ==, 0);
    g_assert_true(is_zero(map->host + 9 * page, page));
    g_assert_cmpint(map->host[9 * page - 1], ==, 3);
    g_assert_cmpint(map->host[10 * page], ==, 3);
    g_assert_cmpint(map->host[page], ==, 3);
    munmap(part.host, part.len);
    map_free(map);
}

static void test_drop_reports_refusal(void)
{
    PrimMap *map = map_new(MEMFD);

    memset(map->host, 9, map->len);
    g_assert_cmpint(fcntl(map->fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE), ==, 0);
    g_assert_cmpint(prim_discard(map, prim_backing(map), 0, map->len), ==,
                    -EPERM);
    g_assert_cmpint(map->host[0], ==, 9);
    map_free(map);
}

static void test_clear(void)
{
    g_autofree uint8_t *raw = g_malloc(8192 + 64);
    uint8_t *buf = raw + 64 - (uintptr_t)raw % 64;
    GRand *rand = g_rand_new_with_seed(1);

    for (unsigned i = 0; i < 200; i++) {
        size_t from = g_rand_int_range(rand, 0, 64) * 64;
        size_t len = g_rand_int_range(rand, 1, 64) * 64;

        memset(buf, 0x5a, 8192);
        prim_clear(buf + from, len);
        prim_clear_fence();
        for (size_t j = 0; j < 8192; j++) {
            g_assert_cmpint(buf[j], ==,
                            j >= from && j < from + len ? 0 : 0x5a);
        }
    }
    g_rand_free(rand);
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

/* How many system calls that takes, for @asked pages of @map */
static uint64_t calls_to_find(Kind kind, const PrimMap *map, unsigned asked,
                              const Found *found)
{
    unsigned seeks;

    switch ((int)kind) {
    case MEMFD:                     /* two lseek, and one that finds no more */
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

/* Every page that was written must be found, whatever the query's bounds */
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
            /* Where the kernel tells, nothing else is reported */
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

/* Where others have written the file has more pages than our page table */
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
        /* Now it has them all: a read has found the page */
        g_assert_cmpuint(found.calls, ==, no_pagemap_scan || !i ? 4 + 5 : 4);
        g_assert_cmpint(map->host[40 * base_size()], ==, 'x');
    }
    map_free(map);
}

/* As many ranges as take several calls, and bounds inside of a page */
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
        /* A page that has only been read is none, if the kernel can tell */
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

/* mincore() tells a user who may not write to the file that all is there */
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

/* lseek() is a success there, and always says 0 */
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

static uint64_t hugepages_reserved(void)
{
    g_autofree char *text = NULL;

    g_assert_true(g_file_get_contents("/sys/kernel/mm/hugepages/"
                                      "hugepages-2048kB/resv_hugepages",
                                      &text, NULL, NULL));
    return g_ascii_strtoull(text, NULL, 10);
}

/* Without the reservation, a later touch of the pages may be a SIGBUS */
static void test_drop_keeps_hugepages_reserved(void)
{
    PrimMap *map = map_new(MEMFD | HUGE);
    uint64_t before;

    if (!map) {
        return;
    }
    memset(map->host, 1, map->len);
    before = hugepages_reserved();
    g_assert_cmpint(prim_discard(map, prim_backing(map), 0, map->len), ==, 0);
    g_assert_cmpuint(hugepages_reserved(), ==,
                     before + map->len / HUGE_SIZE);
    map_free(map);
}

/* Such a page is in the file, but not in our page table */
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
    /* A file without holes is all data, and nothing else has to be asked */
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

/* More than one call of mincore() tells of */
static void test_data_of_many_hugepages(void)
{
    PrimDataIter it;
    /* What one call tells of: a byte for each of the base pages */
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
    g_autofree char *discard = g_strdup_printf("/prim/discard/%s", name);
    g_autofree char *data = g_strdup_printf("/prim/data/%s", name);

    if (kind != FILE_PRIVATE && kind != MEMFD_PRIVATE) {
        g_test_add_data_func(discard, GINT_TO_POINTER(kind), test_drop);
    }
    g_test_add_data_func(data, GINT_TO_POINTER(kind), test_data);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/prim/backing/kinds", test_backing);
    g_test_add_func("/prim/backing/memfd-with-data",
                    test_backing_memfd_with_data);
    g_test_add_func("/prim/backing/memfd-private-once-touched",
                    test_backing_memfd_private_once_touched);
    g_test_add_func("/prim/clear", test_clear);
    g_test_add_func("/prim/discard/refuses-private-file",
                    test_drop_refuses_private_file);
    g_test_add_func("/prim/discard/is-seen-by-others",
                    test_drop_is_seen_by_others);
    g_test_add_func("/prim/discard/honours-fd-offset",
                    test_drop_honours_fd_offset);
    g_test_add_func("/prim/discard/reports-refusal", test_drop_reports_refusal);
    g_test_add_func("/prim/discard/keeps-hugepages-reserved",
                    test_drop_keeps_hugepages_reserved);
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
