/*
 * Measuring: what things cost on a host, kind of memory by kind
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef RAM_RESET_MEASURE_COSTS_H
#define RAM_RESET_MEASURE_COSTS_H

/*
 * What things cost for one kind of memory, in nanoseconds of one thread.
 *
 * Pages are those of 4 KiB that the host counts in, whatever it maps.  What
 * one fault brings is a granule: a page, or a huge one.
 */
typedef struct MemoryCosts {
    uint32_t granule;       /* pages */
    double test;            /* a page that is zero: to find that out */
    double clear;           /* one that is not: to find out, and to clear */
    double discard_call;    /* discarding a range, apart from its pages */
    double discard;         /* ... each page that is there */
    double remap_call;      /* fresh memory for a block, apart from ... */
    double remap;           /* ... each page that was there */
    double fault;           /* QEMU touches a granule that is not there */
    double guest_fault;     /* what is added to that if the guest does */
    double guest_map;       /* the guest touches one that QEMU has touched */
} MemoryCosts;

typedef enum CostsKind {
    COSTS_ANONYMOUS,        /* private, without hugetlbfs */
    COSTS_SHARED,           /* likewise, shared */
    COSTS_HUGETLB,
    COSTS_NR_KINDS,
} CostsKind;

typedef struct HostCosts {
    bool known[COSTS_NR_KINDS];
    MemoryCosts kinds[COSTS_NR_KINDS];
} HostCosts;

/* "anonymous", "shared", "hugetlb" */
const char *costs_kind_name(CostsKind kind);

/*
 * Read a key file: a group for each kind that is known, named like it, with a
 * key for each member of MemoryCosts ("discard-call=1200.5"), in nanoseconds,
 * the granule in bytes; all of them, and no others.
 *
 * Returns: NULL, or a sentence that says what is wrong, to be freed
 */
char *costs_read(const char *path, HostCosts *costs);

/*
 * The costs for granules of another size: a fault clears a granule, so that it
 * costs more if that is larger; discarding one costs the same, whatever its
 * size.
 */
MemoryCosts costs_for_granule(const MemoryCosts *costs, uint32_t granule);

#endif
