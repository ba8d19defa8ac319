/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Numbers of the host: a load does not bring them back. */

#ifndef GUEST_RDRAND_H
#define GUEST_RDRAND_H

#include <stdbool.h>
#include <stdint.h>

/* Not 0 */
static inline uint64_t fresh_number(void)
{
    uint64_t number;
    bool ok;

    do {
        asm volatile("rdrand %0" : "=r"(number), "=@ccc"(ok));
    } while (!ok || !number);
    return number;
}

#endif
