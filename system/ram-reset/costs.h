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
 * key for each member of PolicyCosts ("discard-call=1200.5"), in nanoseconds, the
 * granule in bytes; all of them, and no others.
 *
 * Returns: NULL, or a sentence that says what is wrong, to be freed
 */
char *costs_read(const char *path, HostCosts *costs);

/*
 * The costs for granules of another size: a fault clears a granule, so that it
 * costs more if that is larger; giving one back costs the same, whatever its
 * size.
 */
PolicyCosts costs_for_granule(const PolicyCosts *costs, uint32_t granule);

#endif
