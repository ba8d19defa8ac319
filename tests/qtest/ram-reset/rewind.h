/*
 * RAM reset: cases, object and random writes of tests of rewinds
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef RAM_RESET_REWIND_H
#define RAM_RESET_REWIND_H

#include "qemu/units.h"
#include "framework.h"

#define REWIND_SIZE (16 * MiB)

/* The strategies and kinds of memory that each test of rewinds runs with */
typedef struct RewindCase {
    const char *strategy;
    MemKind kind;
} RewindCase;

#define NR_REWIND_CASES 13
extern const RewindCase rewind_cases[NR_REWIND_CASES];

/* The object with rewind=on and @more properties */
char *rewind_object(const char *strategy, const char *more);

/*
 * Writes to @times random pages of a machine with REWIND_SIZE of RAM.  Returns
 * the number of pages that were written to.
 */
unsigned rewind_scribble(Vm *vm, GRand *rand, unsigned times);

#endif
