/*
 * The cost of copy on write after fork: one byte, one page of whatever size
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "mem-bench.h"

typedef struct Result {
    double fork_ms, write_ms;
    bool thp;
} Result;

static int reap(pid_t pid)
{
    int status;

    return waitpid(pid, &status, 0) == pid && WIFEXITED(status)
           ? WEXITSTATUS(status) : 1;
}

/* Aligned, since only whole hugepages can be transparent ones */
static uint8_t *map_kind(const char *kind, size_t len)
{
    uint8_t *host;

    if (!g_str_equal(kind, "thp")) {
        return map_private(len, g_str_equal(kind, "hugetlb"));
    }
    host = map_private(len + HUGE, false);
    host = (uint8_t *)(((uintptr_t)host + HUGE - 1) & -HUGE);
    madvise(host, len, MADV_HUGEPAGE);
    return host;
}

/* A write to the first page has made the second one present, or not */
static bool is_thp(uint8_t *host)
{
    unsigned char vec = 0;

    return mincore(host + PAGE, PAGE, &vec) == 0 && vec & 1;
}

static void write_every(uint8_t *host, size_t len, size_t step)
{
    for (size_t i = 0; i < len; i += step) {
        host[i]++;
    }
}

static int parent(const char *kind, size_t len, size_t step, Result *result)
{
    uint8_t *host = map_kind(kind, len);
    double start;
    pid_t pid;

    host[0] = 1;
    result->thp = is_thp(host);
    write_every(host, len, PAGE);
    start = now_ms();
    pid = fork();
    if (pid < 0) {
        die("fork");
    }
    if (pid == 0) {
        start = now_ms();
        write_every(host, len, step);
        result->write_ms = now_ms() - start;
        _exit(0);
    }
    result->fork_ms = now_ms() - start;
    return reap(pid);
}

void run_cow(char **args)
{
    static const char *const kinds[] = { "4k", "thp", "hugetlb", NULL };
    size_t len = number(args[1], 1, 1 << 16) * HUGE;
    bool dense = g_str_equal(args[2], "dense");
    Result *result = mmap(NULL, PAGE, PROT_READ | PROT_WRITE,
                          MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    double start;
    int status;
    pid_t pid;

    if (!g_strv_contains(kinds, args[0])) {
        refuse("there is no kind of memory '%s'", args[0]);
    }
    if (!dense && !g_str_equal(args[2], "sparse")) {
        refuse("writes are dense or sparse, not '%s'", args[2]);
    }
    if (result == MAP_FAILED) {
        die("map memory");
    }
    start = now_ms();
    pid = fork();
    if (pid < 0) {
        die("fork");
    }
    if (pid == 0) {
        _exit(parent(args[0], len, dense ? PAGE : HUGE, result));
    }
    status = reap(pid);
    if (status == LACKING) {
        exit(status);
    }
    if (status) {
        skip("the process was killed, as it is when there are no hugepages");
    }
    printf("{\"whole_ms\": %.5f, \"fork_ms\": %.5f, \"write_ms\": %.5f, "
           "\"thp\": %s}\n", now_ms() - start, result->fork_ms,
           result->write_ms, result->thp ? "true" : "false");
}
