/*
 * ram-reset-auto: what things cost on a host, kind of memory by kind
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef RAM_RESET_COSTS_H
#define RAM_RESET_COSTS_H

#include "policy.h"

typedef enum CostsKind {
    COSTS_ANONYMOUS,        /* private, without hugetlbfs */
    COSTS_SHARED,           /* likewise, shared */
    COSTS_HUGETLB,
    COSTS_NR_KINDS,
} CostsKind;

typedef struct HostCosts {
    bool known[COSTS_NR_KINDS];
    PolicyCosts kinds[COSTS_NR_KINDS];
} HostCosts;

/* "anonymous", "shared", "hugetlb" */
const char *costs_kind_name(CostsKind kind);

/*
 * Read a key file: a group for each kind that is known, named like it, with a
 * key for each member of PolicyCosts ("drop-call=1200.5"), in nanoseconds; all
 * of them, and no others.
 *
 * Returns: NULL, or a sentence that says what is wrong, to be freed
 */
char *costs_read(const char *path, HostCosts *costs);

/* As text that costs_read() understands, to be freed */
char *costs_to_text(const HostCosts *costs);

/*
 * The costs for granules of another size: faults that clear a granule cost as
 * much more as that is larger.
 */
PolicyCosts costs_for_granule(const PolicyCosts *costs, uint32_t granule);

#endif
