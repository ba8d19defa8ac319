/*
 * ram-reset-auto: which strategy is the cheapest
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef RAM_RESET_AUTO_POLICY_H
#define RAM_RESET_AUTO_POLICY_H

#include "system/ram-reset/measure/costs.h"

/*
 * A function of what things cost here and of what there is to do, and of
 * nothing else: no QEMU, no clock, no state.  policy.c says how it decides.
 *
 * Pages and granules are as in costs.h.
 */

typedef enum PolicyObjective {
    POLICY_TOTAL,           /* the load, and the faults that the guest has */
    POLICY_LATENCY,         /* the load alone */
    POLICY_FOOTPRINT,       /* memory in use after the load, then TOTAL */
} PolicyObjective;

/* A part of a block, at least as large as a granule; numbers of pages */
typedef struct PolicyChunk {
    uint32_t resident;      /* that are there */
    uint32_t stored;        /* that the snapshot is going to write */
    uint32_t again;         /* others that the guest will write afterwards */
    /*
     * Tests of others that loads have wasted since the chunk was last
     * discarded: had it been discarded again, there would have been none
     */
    uint64_t wasted;
} PolicyChunk;

typedef struct PolicyFacts {
    PolicyObjective objective;
    const PolicyChunk *chunks;
    size_t nr_chunks;       /* at least 1 */
    uint32_t chunk_pages;   /* the last chunk may have fewer */
    unsigned threads;       /* that clear, at least 1 */
    bool prealloc;          /* fresh memory is populated at once */
    bool can_discard, can_remap;
    bool can_split;         /* it is known what is where */
} PolicyFacts;

typedef enum PolicyChoice {
    POLICY_CLEAR,           /* in place, what the snapshot does not write */
    POLICY_DISCARD,
    POLICY_REMAP,
    POLICY_SPLIT,           /* some chunks are cleared, others discarded */
    POLICY_NR_CHOICES,
} PolicyChoice;

/* In nanoseconds; @resident in pages */
typedef struct PolicyEstimate {
    bool possible;
    double reset;           /* making memory zero */
    double load;            /* faults while the snapshot is read */
    double guest;           /* faults of the guest */
    double owed;            /* wasted by past loads: a reason to stop that */
    uint64_t resident;      /* when the load has ended */
} PolicyEstimate;

typedef struct PolicyDecision {
    PolicyChoice choice;
    PolicyEstimate estimates[POLICY_NR_CHOICES];
} PolicyDecision;

/*
 * @discard: has an element for each chunk, which is set to whether it is to be
 * discarded; of use where POLICY_SPLIT is chosen.
 */
PolicyDecision policy_decide(const MemoryCosts *costs,
                             const PolicyFacts *facts, bool *discard);

/* How many granules @pages are in, if they lie anywhere in a chunk */
double policy_granules(uint32_t granule, uint32_t chunk_pages, uint32_t pages);

/*
 * Corrects calibrated costs by what loads have taken.  @slower: by
 * PolicyChoice, how many times as long; each starts as 1.
 */
MemoryCosts policy_experienced(const MemoryCosts *costs,
                               const double slower[POLICY_NR_CHOICES]);

/*
 * The next @slower of a strategy, after a load by it that took @ratio times
 * what was expected.
 */
double policy_slower(double slower, double ratio);

/* ... after a load by another strategy */
double policy_slower_unused(double slower);

/* Whether what a load by @one has shown goes for @other as well */
bool policy_learn_together(PolicyChoice one, PolicyChoice other);

/* What @objective has as small as can be, in nanoseconds */
double policy_score(PolicyObjective objective, const PolicyEstimate *estimate);

#endif
