/*
 * ram-reset-auto: which strategy is the cheapest
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef RAM_RESET_POLICY_H
#define RAM_RESET_POLICY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "costs.h"

/*
 * A function of what things cost here and of what there is to do, and of
 * nothing else: no QEMU, no clock, no state.
 *
 * Pages are those of 4 KiB that the host counts in, whatever it maps.  What
 * one fault brings is a granule: a page, or a huge one.
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
     * Others that past loads have tested, all added up, since the chunk was
     * last discarded; had it been discarded again they would not have been there
     */
    uint64_t vain;
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
    /*
     * What past loads have spent on testing in vain: as soon as it is more
     * than what it takes to be rid of those pages, it is time to do that.
     * If they are not used again, both together are at most twice what the
     * best would have been.
     */
    double owed;
    uint64_t resident;      /* when the load has ended */
} PolicyEstimate;

typedef struct PolicyDecision {
    PolicyChoice choice;
    PolicyEstimate estimates[POLICY_NR_CHOICES];
} PolicyDecision;

/*
 * @discard: for each chunk whether it is to be discarded, by the caller; of use
 * where POLICY_SPLIT is chosen.  The simpler choice is taken if another one does
 * not take some percent less time: estimates are not exact.
 */
PolicyDecision policy_decide(const MemoryCosts *costs,
                             const PolicyFacts *facts, bool *discard);

/* How many granules @pages are in, if they lie anywhere in a chunk */
double policy_granules(uint32_t granule, uint32_t chunk_pages, uint32_t pages);

/*
 * Scratch memory is small and in one piece.  Pages of a guest that lie here and
 * there in gigabytes take some times as long: 5 times were seen.  @slower: by
 * PolicyChoice, so many times what was calibrated; each starts as 1.
 */
MemoryCosts policy_experienced(const MemoryCosts *costs,
                               const double slower[POLICY_NR_CHOICES]);

/*
 * The next @slower of a strategy, after a load by it that took @ratio times what
 * was expected.  One load, which may have been disturbed, does not change much.
 */
double policy_slower(double slower, double ratio);

/* ... after a load by another one: in the long run it is worth another try */
double policy_slower_unused(double slower);

/*
 * Whether what has been seen of @one goes for @other as well: discarding and
 * remapping give the same pages back.
 */
bool policy_learn_together(PolicyChoice one, PolicyChoice other);

/* What @objective has as small as can be, in nanoseconds */
double policy_score(PolicyObjective objective, const PolicyEstimate *estimate);

#endif
