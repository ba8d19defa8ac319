/*
 * The limits of a parser that is fuzzed
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>
#include "outside.h"
#include "target.h"

/* For each byte of input */
#define MOST_BYTES  8
#define MOST_NS     1000

/* For any input: sanitizers are slow, and the host may be busy */
#define BASE_NS     500000000

/* Seconds until an input is taken to hang */
#define HANG        100

static struct {
    const uint8_t *data;
    size_t size;
    size_t allocated, peak;
} run;

static void keep_input(void)
{
    const char *path = g_getenv("FUZZ_FINDING");
    FILE *file = path && run.data ? fopen(path, "w") : NULL;

    if (file) {
        fwrite(run.data, 1, run.size, file);
        fclose(file);
        fprintf(stderr, "fuzz: the input is in %s\n", path);
    }
}

G_NORETURN void fuzz_fail(const char *what)
{
    fprintf(stderr, "ERROR: fuzz: %s, with an input of %zu bytes\n", what,
            run.size);
    keep_input();
    abort();
}

static void hangs(int signal)
{
    fuzz_fail("it hangs");
}

/* Adds zero bytes too, and the room that the sanitizer needs for itself */
static void note_malloc(const void *p, size_t size)
{
    run.allocated += size;
    run.peak = MAX(run.peak, run.allocated);
}

static void note_free(const void *p)
{
    size_t size = p ? __sanitizer_get_allocated_size(p) : 0;

    run.allocated -= MIN(size, run.allocated);
}

static void begin(void)
{
    static const struct sigaction action = { .sa_handler = hangs };
    static bool begun;

    if (!begun) {
        begun = true;
        __sanitizer_install_malloc_and_free_hooks(note_malloc, note_free);
        __sanitizer_set_death_callback(keep_input);
        sigaction(SIGPROF, &action, NULL);
    }
}

static int64_t cpu_time(void)
{
    struct timespec t;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

void fuzz_run(const uint8_t *data, size_t size)
{
    struct itimerval hang = { .it_value.tv_sec = HANG }, off = {};
    int64_t start;

    begin();
    run.data = data;
    run.size = size;
    run.allocated = run.peak = 0;
    setitimer(ITIMER_PROF, &hang, NULL);
    start = cpu_time();
    target_run(data, size);
    if (cpu_time() - start > BASE_NS + (int64_t)size * MOST_NS) {
        fuzz_fail("it takes too much time");
    }
    if (run.peak > target_memory + size * MOST_BYTES) {
        fuzz_fail("it takes too much memory");
    }
    setitimer(ITIMER_PROF, &off, NULL);
    run.data = NULL;
}
