/*
 * Functions of compilers, sanitizers and libFuzzer that no header declares
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef FUZZ_OUTSIDE_H
#define FUZZ_OUTSIDE_H

#include <stddef.h>
#include <stdint.h>

/* AddressSanitizer has these */
int __sanitizer_install_malloc_and_free_hooks(
    void (*on_malloc)(const void *, size_t), void (*on_free)(const void *));
size_t __sanitizer_get_allocated_size(const void *p);
void __sanitizer_set_death_callback(void (*callback)(void));

/* Called with gcc, wherever the parser branches */
void __sanitizer_cov_trace_pc(void);

/* libFuzzer calls these, and has the last */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most,
                               unsigned seed);
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t most);

#endif
