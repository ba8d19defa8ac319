/*
 * A parser with a fault, to see whether it is found
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include <stdlib.h>
#include <string.h>
#include "target.h"

const size_t target_memory = 1 << 20;

static bool is_planted(const char *fault)
{
    return !g_strcmp0(g_getenv("FUZZ_PLANTED"), fault);
}

static void read_behind(const uint8_t *data, size_t size)
{
    g_autofree uint8_t *copy = g_memdup2(data, size);

    if (copy && copy[size] == 1) {
        abort();
    }
}

static void take_time(const uint8_t *data, size_t size)
{
    for (size_t i = 0; i < 300 * size; i++) {
        g_free(g_compute_checksum_for_data(G_CHECKSUM_SHA256, data, size));
    }
}

static void take_memory(size_t size)
{
    g_autoptr(GPtrArray) all = g_ptr_array_new_with_free_func(g_free);

    for (size_t i = 0; i < 20 * size; i++) {
        g_ptr_array_add(all, g_malloc(1000));
    }
}

void target_run(const uint8_t *data, size_t size)
{
    if (is_planted("bounds")) {
        read_behind(data, size);
    } else if (is_planted("time")) {
        take_time(data, size);
    } else if (is_planted("memory")) {
        take_memory(size);
    } else if (is_planted("leak") && size) {
        data = g_memdup2(data, size);
    }
}

void target_repair(GByteArray *input)
{
}

void target_seed(GByteArray *input)
{
    g_byte_array_set_size(input, 1000);
    memset(input->data, 'a', input->len);
}
