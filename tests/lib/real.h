/*
 * The function that a preloaded library takes the place of
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef RAM_RESET_TEST_REAL_H
#define RAM_RESET_TEST_REAL_H

#include <dlfcn.h>

#define REAL(name) ({ \
    static __typeof__(name) *real; \
    if (!real) { \
        real = (__typeof__(name) *)dlsym(RTLD_NEXT, #name); \
    } \
    real; \
})

#endif
