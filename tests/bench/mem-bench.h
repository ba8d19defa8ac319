/*
 * Types and functions that the parts of mem-bench share
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef RAM_RESET_MEM_BENCH_H
#define RAM_RESET_MEM_BENCH_H

#include "qemu/osdep.h"

#define PAGE ((size_t)4096)
#define HUGE ((size_t)2 << 20)
#define MIB  ((size_t)1 << 20)

/* Exit status, as test programs have it when they skip */
#define LACKING 77

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

double now_ms(void);

/* Says "mem-bench: cannot @what: " and errno's text; status 1 */
G_NORETURN void die(const char *what);
/* For bad arguments, with status 2 */
G_NORETURN void refuse(const char *format, ...) G_GNUC_PRINTF(1, 2);
/* The host lacks something that it need not have */
G_NORETURN void skip(const char *why);

uint64_t number(const char *text, uint64_t min, uint64_t max);
void *map_private(size_t len, bool hugetlb);
/* Every page that is not there is allocated */
void populate(void *host, size_t len);

void run_region(char **args);
void run_reuse(char **args);
void run_cow(char **args);
void run_unmap(char **args);

#endif
