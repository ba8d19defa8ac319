/*
 * RAM reset tests: kinds of guest RAM, and whether this host has them
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include <sys/mount.h>
#include "qemu/units.h"
#include "framework.h"

const char *mem_name(MemKind kind)
{
    static const char *const names[MEM__MAX] = {
        "anon", "thp", "memfd", "hugetlb", "hugetlb-private",
        "hugetlb-file", "private-file",
    };

    return names[kind];
}

uint64_t mem_page_size(MemKind kind)
{
    switch (kind) {
    case MEM_HUGETLB:
    case MEM_HUGETLB_PRIVATE:
    case MEM_HUGETLB_FILE:
        return 2 * MiB;
    default:
        return 4 * KiB;
    }
}

bool mem_is_huge(MemKind kind)
{
    return mem_page_size(kind) > 4 * KiB;
}

const char *mem_huge_dir(void)
{
    static char *huge_dir;

    if (!huge_dir) {
        g_autofree char *dir = g_strdup_printf("%s/ram-reset-huge-%d",
                                               g_get_tmp_dir(), getpid());
        int fd = -1;

        if (g_mkdir_with_parents(dir, 0700) == 0 &&
            mount("none", dir, "hugetlbfs", 0, "pagesize=2M") == 0) {
            fd = open(dir, O_RDONLY | O_DIRECTORY);
            umount2(dir, MNT_DETACH);
        }
        rmdir(dir);
        if (fd < 0) {
            return NULL;
        }
        huge_dir = g_strdup_printf("/proc/%d/fd/%d", getpid(), fd);
    }
    return huge_dir;
}

const char *mem_missing(MemKind kind)
{
    g_autofree char *thp = NULL;

    switch (kind) {
    case MEM_THP:
        if (!g_file_get_contents("/sys/kernel/mm/transparent_hugepage/enabled",
                                 &thp, NULL, NULL) || strstr(thp, "[never]")) {
            return "transparent hugepages are off on this host";
        }
        return NULL;
    case MEM_HUGETLB_FILE:
        if (!mem_huge_dir()) {
            return "hugetlbfs cannot be mounted here, run as root";
        }
        /* fall through */
    case MEM_HUGETLB:
    case MEM_HUGETLB_PRIVATE:
        return hugepages("free") < 64 ? "fewer than 64 hugepages of 2 MiB are "
                                         "free, raise vm.nr_hugepages" : NULL;
    default:
        return NULL;
    }
}

bool mem_skip(MemKind kind)
{
    const char *missing = mem_missing(kind);

    if (missing) {
        g_test_skip(missing);
    }
    return missing;
}
