/*
 * A fuzzer for where there is no libFuzzer: what reaches new code is kept
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include "outside.h"
#include "target.h"

/* The size of most inputs, and of one with a million small elements */
#define MOST        (256 << 10)
#define LARGE       (24 << 20)
#define NR_LARGE    2

#define MAP_SIZE    65536

static uint8_t seen[MAP_SIZE], hit[MAP_SIZE];
static uint16_t hits[MAP_SIZE];
static unsigned nr_hits;
static uintptr_t last;
static GPtrArray *pool;

__attribute__((no_sanitize("coverage", "address", "undefined")))
void __sanitizer_cov_trace_pc(void)
{
    uintptr_t here = (uintptr_t)__builtin_return_address(0);
    uint16_t edge = (here ^ here >> 16 ^ last << 3) % MAP_SIZE;

    last = here;
    if (!hit[edge]) {
        hit[edge] = 1;
        hits[nr_hits++] = edge;
    }
}

/* Whether it has gone where none before it has */
static bool run(const GByteArray *input)
{
    bool is_new = false;

    last = 0;
    fuzz_run(input->data, input->len);
    while (nr_hits) {
        uint16_t edge = hits[--nr_hits];

        is_new |= !seen[edge];
        seen[edge] = 1;
        hit[edge] = 0;
    }
    return is_new;
}

static GByteArray *copy_of(const GByteArray *input)
{
    GByteArray *copy = g_byte_array_new();

    return g_byte_array_append(copy, input->data, input->len);
}

static GByteArray *any(GRand *rand)
{
    return g_ptr_array_index(pool, g_rand_int_range(rand, 0, pool->len));
}

static void read_corpus(const char *path)
{
    g_autoptr(GDir) dir = g_dir_open(path, 0, NULL);
    const char *name;

    while (dir && (name = g_dir_read_name(dir))) {
        g_autofree char *file = g_build_filename(path, name, NULL);
        char *data;
        gsize len;

        if (g_file_get_contents(file, &data, &len, NULL)) {
            g_ptr_array_add(pool, g_byte_array_new_take((guint8 *)data, len));
        }
    }
}

static void run_large(GRand *rand)
{
    for (int i = 0; i < NR_LARGE; i++) {
        g_autoptr(GByteArray) input = copy_of(any(rand));

        fuzz_repeat(rand, input, LARGE >> i);
        target_repair(input);
        run(input);
    }
}

/* Time of the processor: the same amount of work on a host that is busy */
static double seconds(void)
{
    return (double)clock() / CLOCKS_PER_SEC;
}

int main(int argc, char **argv)
{
    g_autoptr(GRand) rand = NULL;
    uint64_t count = 0;
    double end;

    if (argc != 4) {
        fprintf(stderr, "usage: %s CORPUS SECONDS SEED\n", argv[0]);
        return 2;
    }
    pool = g_ptr_array_new();
    g_ptr_array_add(pool, g_byte_array_new());
    target_seed(g_ptr_array_index(pool, 0));
    read_corpus(argv[1]);
    rand = g_rand_new_with_seed(atoi(argv[3]));
    for (unsigned i = 0; i < pool->len; i++, count++) {
        run(g_ptr_array_index(pool, i));
    }
    run_large(rand);
    end = seconds() + atof(argv[2]);
    do {
        GByteArray *input = copy_of(any(rand));

        fuzz_mutate(rand, input, any(rand), MOST);
        count++;
        if (run(input)) {
            g_ptr_array_add(pool, input);
        } else {
            g_byte_array_unref(input);
        }
    } while (seconds() < end);
    printf("%" G_GUINT64_FORMAT " executions, %u inputs kept\n",
           count + NR_LARGE, pool->len);
    return 0;
}
