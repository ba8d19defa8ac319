/*
 * ram-reset-auto: decide which strategy is the cheapest
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef RAM_RESET_AUTO_POLICY_H
#define RAM_RESET_AUTO_POLICY_H

#include "system/ram-reset/measure/costs.h"

/*
 * A pure function of the costs on this host and of the work to be done: no
 * QEMU, no clock, no state. policy.c explains how it decides.
 *
 * Pages and granules are as in costs.h.
 */

typedef enum PolicyObjective {
    POLICY_TOTAL,           /* the load, and the guest's faults after it */
    POLICY_LATENCY,         /* the load alone */
    POLICY_FOOTPRINT,       /* memory in use after the load, then TOTAL */
} PolicyObjective;

/* A part of a block, at least as large as a granule; in pages */
typedef struct PolicyChunk {
    uint32_t resident;      /* present */
    uint32_t stored;        /* the snapshot will write them */
    uint32_t again;         /* other pages that the guest will write */
    /*
     * Wasted tests of other pages since the chunk was last discarded: another
     * discard would have avoided them
     */
    uint64_t wasted;
} PolicyChunk;

typedef struct PolicyFacts {
    PolicyObjective objective;
    const PolicyChunk *chunks;
    size_t nr_chunks;       /* at least 1 */
    uint32_t chunk_pages;   /* the last chunk may have fewer */
    unsigned threads;       /* threads that clear, at least 1 */
    bool prealloc;          /* fresh memory is populated at once */
    bool can_discard, can_remap;
    bool can_split;         /* the positions of pages are known */
} PolicyFacts;

typedef enum PolicyChoice {
    POLICY_CLEAR,           /* in place, except for the snapshot's pages */
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
    double owed;            /* wasted by past loads, see policy.c */
    uint64_t resident;      /* after the load */
} PolicyEstimate;

typedef struct PolicyDecision {
    PolicyChoice choice;
    PolicyEstimate estimates[POLICY_NR_CHOICES];
} PolicyDecision;

/*
 * @discard: has an element for each chunk, which is set if the chunk is to be
 * discarded; valid if POLICY_SPLIT is chosen.
 */
PolicyDecision policy_decide(const MemoryCosts *costs,
                             const PolicyFacts *facts, bool *discard);

/*
 * The number of granules that contain @pages, if these lie anywhere in a chunk
 */
double policy_granules(uint32_t granule, uint32_t chunk_pages, uint32_t pages);

/*
 * Correct calibrated costs by the times of past loads.  @slower: a factor for
 * each PolicyChoice; each starts as 1.
 */
MemoryCosts policy_experienced(const MemoryCosts *costs,
                               const double slower[POLICY_NR_CHOICES]);

/*
 * The next @slower of a strategy, after a load by it that took @ratio times the
 * expected time.
 */
double policy_slower(double slower, double ratio);

/* ... after a load by another strategy */
double policy_slower_unused(double slower);

/* Whether the result of a load by @one is valid for @other as well */
bool policy_learn_together(PolicyChoice one, PolicyChoice other);

/* The quantity that @objective minimises, in nanoseconds */
double policy_score(PolicyObjective objective, const PolicyEstimate *estimate);

#endif
