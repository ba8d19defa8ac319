/*
 * Measuring: memory to measure with, a clock, and figures out of samples
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef RAM_RESET_MEASURE_SCRATCH_H
#define RAM_RESET_MEASURE_SCRATCH_H

#include "system/ram-reset/prim/prim.h"

/* How scratch memory is aligned; the hugepages of most hosts */
#define SCRATCH_ALIGN   (2 * 1024 * 1024)

/* Where the fastest of some times is taken, instead of a median */
#define MEASURE_TRIES   2

#define MEASURE_MAX_SAMPLES 8

/**
 * MeasureSamples: times that the same work took; all 0 to begin with
 */
typedef struct MeasureSamples {
    double ns[MEASURE_MAX_SAMPLES];
    unsigned nr;
} MeasureSamples;

/**
 * scratch_map: map @len bytes of fresh memory, aligned to SCRATCH_ALIGN, as
 * QEMU maps guest RAM
 *
 * The caller says by madvise() whether it wants hugepages.
 *
 * @map: filled in; for scratch_unmap() also after a failure
 *
 * Returns: false if the kernel refuses
 */
bool scratch_map(PrimMap *map, uint64_t len, bool shared);

void scratch_unmap(PrimMap *map);

/**
 * scratch_touch: write to one byte in each @step bytes
 *
 * A 0 is written, so that pages still read as zero.
 */
void scratch_touch(uint8_t *host, size_t len, size_t step);

/**
 * measure_clock: CPU time of this thread in ns; others may take the CPU for a
 * while
 */
int64_t measure_clock(void);

/**
 * measure_add: another sample, the time from @since, of measure_clock(), on;
 * at most MEASURE_MAX_SAMPLES
 */
void measure_add(MeasureSamples *samples, int64_t since);

/**
 * measure_median: of one sample or more, which are put in order
 */
double measure_median(MeasureSamples *samples);

/**
 * measure_beyond: what is left of @whole when @part is taken off, at least 1;
 * noise may have it negative
 */
double measure_beyond(double whole, double part);

#endif
