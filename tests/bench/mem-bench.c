/*
 * The cost of memory on this host: clearing, discarding, copying, unmapping
 *
 * Each call makes one round of measurements and prints a line of JSON for
 * each.  ./bench lets such calls take turns, and has the statistics.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "mem-bench.h"

static const struct {
    const char *name;
    const char *args;
    const char *what;
    int n_args;
    void (*run)(char **args);
} commands[] = {
    { "region", "KIND MIB ROUND", "make a region zero and use it again;\n"
      "      KIND: anonymous, memfd, hugetlb or hugetlb-memfd", 3, run_region },
    { "reuse", "FILE MIB", "map a file on hugetlbfs and touch its pages", 2,
      run_reuse },
    { "cow", "KIND N dense|sparse", "write after fork to N x 2 MiB;\n"
      "      KIND: 4k, thp or hugetlb", 3, run_cow },
    { "unmap", "PAGES ROUND", "unmap at least PAGES pages by batches", 2,
      run_unmap },
};

double now_ms(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return ts.tv_sec * 1e3 + ts.tv_nsec / 1e6;
}

void die(const char *what)
{
    fprintf(stderr, "mem-bench: cannot %s: %s\n", what, strerror(errno));
    exit(1);
}

void refuse(const char *format, ...)
{
    va_list ap;

    fprintf(stderr, "mem-bench: ");
    va_start(ap, format);
    vfprintf(stderr, format, ap);
    va_end(ap);
    fprintf(stderr, "; see mem-bench --help\n");
    exit(2);
}

void skip(const char *why)
{
    fprintf(stderr, "%s\n", why);
    exit(LACKING);
}

uint64_t number(const char *text, uint64_t min, uint64_t max)
{
    guint64 value;

    if (!g_ascii_string_to_unsigned(text, 10, min, max, &value, NULL)) {
        refuse("'%s' is not a number from %" PRIu64 " to %" PRIu64,
               text, min, max);
    }
    return value;
}

void *map_private(size_t len, bool hugetlb)
{
    void *p = mmap(NULL, len, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | (hugetlb ? MAP_HUGETLB : 0),
                   -1, 0);

    if (p == MAP_FAILED && hugetlb) {
        skip("there are too few free hugepages");
    }
    if (p == MAP_FAILED) {
        die("map memory");
    }
    if (!hugetlb) {
        madvise(p, len, MADV_NOHUGEPAGE);
    }
    return p;
}

void populate(void *host, size_t len)
{
    if (madvise(host, len, MADV_POPULATE_WRITE) == 0) {
        return;
    }
    /* volatile: for the fault, the value stays */
    for (volatile uint8_t *p = host; p < (uint8_t *)host + len; p += PAGE) {
        *p = *p;
    }
}

static void usage(FILE *out)
{
    for (size_t i = 0; i < G_N_ELEMENTS(commands); i++) {
        fprintf(out, "%s mem-bench %s %s\n      %s\n", i ? "      " : "Usage:",
                commands[i].name, commands[i].args, commands[i].what);
    }
}

int main(int argc, char **argv)
{
    if (argc == 2 && g_str_equal(argv[1], "--help")) {
        usage(stdout);
        return 0;
    }
    for (size_t i = 0; i < G_N_ELEMENTS(commands); i++) {
        if (argc > 1 && g_str_equal(argv[1], commands[i].name) &&
            argc == 2 + commands[i].n_args) {
            commands[i].run(argv + 2);
            return fflush(stdout) == 0 ? 0 : 1;
        }
    }
    usage(stderr);
    return 2;
}
