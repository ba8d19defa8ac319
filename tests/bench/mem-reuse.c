/*
 * The cost of mapping hugepages, new ones and ones of a kept file
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "mem-bench.h"
#include <sys/vfs.h>
#include "system/ram-reset/prim/prim.h"

#define MARK_AT 64
#define MARK    0xa5

static int open_file(const char *path)
{
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    struct statfs fs;

    if (fd < 0 || fstatfs(fd, &fs) < 0) {
        die("open the file");
    }
    if (!prim_is_on_hugetlbfs(fd) || (size_t)fs.f_bsize != HUGE) {
        refuse("%s is not in a hugetlbfs with pages of 2 MiB", path);
    }
    return fd;
}

/* How many pages hold what the last process has written; all do afterwards */
static size_t count_kept(uint8_t *host, size_t len)
{
    size_t kept = 0;

    for (size_t i = 0; i < len; i += HUGE) {
        kept += host[i + MARK_AT] == MARK;
        host[i + MARK_AT] = MARK;
    }
    return kept;
}

void run_reuse(char **args)
{
    size_t len = number(args[1], 2, 1 << 20) * MIB & -HUGE;
    double start, mapped, touched, cleared;
    uint8_t *host;
    size_t kept;
    int fd;

    start = now_ms();
    fd = open_file(args[0]);
    if (ftruncate(fd, len) < 0) {
        die("size the file");
    }
    host = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (host == MAP_FAILED) {
        skip("there are too few free hugepages");
    }
    mapped = now_ms();
    for (size_t i = 0; i < len; i += HUGE) {
        host[i] = MARK;
    }
    touched = now_ms();
    kept = count_kept(host, len);
    cleared = now_ms();
    prim_clear(host, len);
    prim_clear_fence();
    cleared = now_ms() - cleared;
    count_kept(host, len);
    printf("{\"map_ms\": %.5f, \"touch_ms\": %.5f, \"clear_ms\": %.5f, "
           "\"pages\": %zu, \"kept\": %zu}\n", mapped - start,
           touched - mapped, cleared, len / HUGE, kept);
}
