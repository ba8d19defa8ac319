/*
 * Unit tests for system/ram-reset/prim/memory.c: backing, discard, clear
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

/* Alone: it counts hugepages of the host */

#include "qemu/osdep.h"
#include "emulator.h"
#include "maps.h"

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
        /* An empty file on a disk: its block count proves nothing */
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
 * A fault in a private mapping of tmpfs also adds a page to the file, which
 * looks like a written page
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

/* Other processes that map the memory must see the zeros, too */
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

static void add_discard(const char *name, Kind kind)
{
    g_autofree char *path = g_strdup_printf("/prim/discard/%s", name);

    g_test_add_data_func(path, GINT_TO_POINTER(kind), test_drop);
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
    add_discard("anon", ANON);
    add_discard("memfd", MEMFD);
    add_discard("shared-anon", SHARED_ANON);
    add_discard("anon-huge", ANON | HUGE);
    add_discard("memfd-huge", MEMFD | HUGE);
    add_discard("memfd-private-huge", MEMFD_PRIVATE | HUGE);
    return g_test_run();
}
