/*
 * A parser that is fuzzed
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef FUZZ_TARGET_H
#define FUZZ_TARGET_H

#include <glib.h>
#include <stdbool.h>
#include <stdint.h>

/* Each target is a program, and has these four */

/* Bytes that it may allocate for an input, whatever its size */
extern const size_t target_memory;

/* Parse @data, and abort if what comes of it is wrong */
void target_run(const uint8_t *data, size_t size);

/*
 * Make lengths and checksums of @input fit the rest, which has been changed;
 * without that, a parser refuses all and hardly looks
 */
void target_repair(GByteArray *input);

/* An input that is in order, to begin with */
void target_seed(GByteArray *input);

/* fuzz.c: for those that drive a target */

/* target_run(), with limits on time and memory by the size of the input */
void fuzz_run(const uint8_t *data, size_t size);

/* Report @what and the input, which goes to a file, and abort */
G_NORETURN void fuzz_fail(const char *what);

/*
 * mutate.c: change @input in one to four places, to at most @most bytes.
 * @other: of which parts may be taken
 */
void fuzz_mutate(GRand *rand, GByteArray *input, const GByteArray *other,
                 size_t most);

/* Elements of JSON are repeated until there are @most bytes */
void fuzz_repeat(GRand *rand, GByteArray *input, size_t most);

#endif
