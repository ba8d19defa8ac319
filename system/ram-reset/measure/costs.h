/*
 * Measuring: the costs on a host for each kind of memory
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef RAM_RESET_MEASURE_COSTS_H
#define RAM_RESET_MEASURE_COSTS_H

#include "qapi/error.h"

/*
 * The costs for one kind of memory, in nanoseconds of one thread.
 *
 * A page has 4 KiB here, whatever the host maps.  A granule is the memory that
 * one fault brings: a page, or a hugepage.
 */
typedef struct MemoryCosts {
    uint32_t granule;       /* pages */
    double test;            /* to test a page that is zero */
    double clear;           /* to test and clear a page that is not */
    double discard_call;    /* to discard a range, without its pages */
    double discard;         /* ... and for each page present */
    double remap_call;      /* fresh memory for a block, without ... */
    double remap;           /* ... and for each page that was present */
    double fault;           /* QEMU touches an absent granule */
    double guest_fault;     /* added to that if the guest touches it */
    double guest_map;       /* the guest touches a granule of QEMU's */
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
 * Read a key file.  It has a group for each known kind, named like the kind.  A
 * group has a key for each member of MemoryCosts ("discard-call=1200.5"), in
 * nanoseconds, the granule in bytes; all keys must be there, and no others.
 */
bool costs_read(const char *path, HostCosts *costs, Error **errp);

/*
 * The costs for granules of another size.  A fault clears a granule, so that it
 * costs more for a larger one; discarding a granule costs the same for any
 * size.
 */
MemoryCosts costs_for_granule(const MemoryCosts *costs, uint32_t granule);

#endif
