/*
 * A mapping of each kind, with the PrimMap that describes it
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include <sys/auxv.h>
#include "maps.h"

size_t base_size(void)
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

void map_free(PrimMap *map)
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

PrimMap *map_new(Kind kind)
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
