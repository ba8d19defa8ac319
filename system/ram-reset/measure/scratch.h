/*
 * Measuring: scratch memory, a clock, and statistics of samples
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef RAM_RESET_MEASURE_SCRATCH_H
#define RAM_RESET_MEASURE_SCRATCH_H

#include "system/ram-reset/prim/prim.h"

/* The alignment of scratch memory: the hugepage size of most hosts */
#define SCRATCH_ALIGN   (2 * 1024 * 1024)

/* The number of tries where the fastest time is used, not a median */
#define MEASURE_TRIES   2

#define MEASURE_MAX_SAMPLES 8

/** MeasureSamples: times of the same work; all 0 at the start */
typedef struct MeasureSamples {
    double ns[MEASURE_MAX_SAMPLES];
    unsigned nr;
} MeasureSamples;

/**
 * scratch_map: map @len bytes of fresh memory, aligned to SCRATCH_ALIGN, like
 * guest RAM
 *
 * The caller sets the advice for hugepages by madvise().
 *
 * @map: filled in; valid for scratch_unmap() even after a failure
 *
 * Returns: false if the kernel refuses
 */
bool scratch_map(PrimMap *map, uint64_t len, bool shared);

void scratch_unmap(PrimMap *map);

/**
 * scratch_touch: write to one byte in each @step bytes
 *
 * It writes a 0, so that pages still read as zero.
 */
void scratch_touch(uint8_t *host, size_t len, size_t step);

/**
 * measure_clock: CPU time of this thread in ns; real time would include other
 * processes' turns on the CPU
 */
int64_t measure_clock(void);

/**
 * measure_add: add a sample, the time since @since, a value of measure_clock();
 * at most MEASURE_MAX_SAMPLES
 */
void measure_add(MeasureSamples *samples, int64_t since);

/** measure_median: the median of at least one sample; sorts the samples */
double measure_median(MeasureSamples *samples);

/**
 * measure_beyond: @whole minus @part, but at least 1, since noise may make it
 * negative
 */
double measure_beyond(double whole, double part);

#endif
