/*
 * Memory of each kind that guest RAM may be, for unit tests
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include <sched.h>
#include <sys/auxv.h>
#include <sys/mount.h>
#include "ram.h"

#define POOL "/sys/kernel/mm/hugepages/hugepages-2048kB/"

const Kind kinds[NR_KINDS] = {
    { .name = "anon" },
    { .name = "shared-anon", .shared = true },
    { .name = "memfd", .shared = true, .memfd = true },
    { .name = "memfd-offset", .shared = true, .memfd = true, .offset = 3 },
    { .name = "memfd-private", .memfd = true },
    { .name = "memfd-huge", .shared = true, .memfd = true, .huge = true },
    { "memfd-huge-offset", .shared = true, .memfd = true, .huge = true, 1 },
};

uint64_t number_in(const char *name)
{
    g_autofree char *text = NULL;

    return g_file_get_contents(name, &text, NULL, NULL)
           ? g_ascii_strtoull(text, NULL, 10) : 0;
}

uint64_t hugepages_to_spare(void)
{
    return number_in(POOL "free_hugepages") - number_in(POOL "resv_hugepages");
}

bool may_use_hugepages(unsigned pages)
{
    if (hugepages_to_spare() < pages) {
        g_test_skip("no 2 MiB hugepages: set vm.nr_hugepages to 64 or more");
        return false;
    }
    return true;
}

bool may_use_hugetlbfs(const char *folder, unsigned pages)
{
    if (!folder) {
        g_test_skip("no right to mount a hugetlbfs of 2 MiB pages");
        return false;
    }
    return may_use_hugepages(pages);
}

char *mount_hugetlbfs(const char *dir)
{
    char *name = g_build_filename(dir, "huge", NULL);

    g_assert_cmpint(mkdir(name, 0700), ==, 0);
    if (unshare(CLONE_NEWNS) < 0 ||
        mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
        mount("none", name, "hugetlbfs", 0, "pagesize=2M") < 0) {
        rmdir(name);
        g_clear_pointer(&name, g_free);
    }
    return name;
}

void unmount_hugetlbfs(const char *path)
{
    umount(path);               /* has no effect if it is no mount */
    rmdir(path);
}

bool possible(const Kind *kind)
{
    return !kind->huge || may_use_hugepages(12);
}

Ram *ram_new(const Kind *kind, const char *name, unsigned flags)
{
    Ram *ram = g_new0(Ram, 1);
    PrimMap *map = &ram->map;

    map->page_size = kind->huge ? HUGE_SIZE : getauxval(AT_PAGESZ);
    map->len = (kind->huge ? 4 : 64) * map->page_size;
    map->fd = -1;
    map->shared = kind->shared;
    map->calls = &ram->calls;
    if (kind->memfd) {
        map->fd = memfd_create(name, flags |
                               (kind->huge ? MFD_HUGETLB | HUGE_FLAG : 0));
        map->fd_offset = kind->offset * map->page_size;
        g_assert_cmpint(ftruncate(map->fd, map->fd_offset + map->len), ==, 0);
    }
    ram->around = mmap(NULL, AROUND, PROT_NONE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    g_assert_true(ram->around != MAP_FAILED);
    map->host = ram->around + 2 * HUGE_SIZE -
                (uintptr_t)ram->around % HUGE_SIZE;
    g_assert_true(mmap(map->host, map->len, PROT_READ | PROT_WRITE,
                       MAP_FIXED | (map->shared ? MAP_SHARED : MAP_PRIVATE) |
                       (map->fd < 0 ? MAP_ANONYMOUS : 0), map->fd,
                       map->fd_offset) == map->host);
    return ram;
}

void ram_free(Ram *ram)
{
    munmap(ram->around, AROUND);
    if (ram->map.fd >= 0) {
        close(ram->map.fd);
    }
    g_free(ram);
}

bool all_are(const Ram *ram, uint8_t value)
{
    const uint8_t *p = ram->map.host;

    return p[0] == value && !memcmp(p, p + 1, ram->map.len - 1);
}

uint64_t ram_pages(const Ram *ram)
{
    return ram->map.len / ram->map.page_size;
}

bool ram_page_is(const Ram *ram, uint64_t page, uint8_t value)
{
    size_t size = ram->map.page_size;
    const uint8_t *p = ram->map.host + page * size;

    return p[0] == value && !memcmp(p, p + 1, size - 1);
}
