/*
 * A parser under libFuzzer
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include <string.h>
#include "outside.h"
#include "target.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_run(data, size);
    return 0;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most,
                               unsigned seed)
{
    g_autoptr(GRand) rand = g_rand_new_with_seed(seed);
    g_autoptr(GByteArray) input = g_byte_array_new();

    if (g_rand_boolean(rand)) {
        size = LLVMFuzzerMutate(data, size, most);
        g_byte_array_append(input, data, size);
        target_repair(input);
    } else {
        g_byte_array_append(input, data, size);
        if (!size) {
            target_seed(input);
        }
        fuzz_mutate(rand, input, input, most);
    }
    size = MIN(input->len, most);
    memcpy(data, input->data, size);
    return size;
}
