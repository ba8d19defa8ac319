/*
 * ram-reset-auto: what things cost on this host
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef RAM_RESET_CALIBRATE_H
#define RAM_RESET_CALIBRATE_H

#include "costs.h"

/*
 * Measure, on a few MiB of scratch memory of that kind, made as QEMU makes
 * guest RAM.  Costs for hugetlbfs follow from those of private memory.  Takes
 * some milliseconds, in this thread.  What the guest costs is not set in
 * @costs.
 *
 * Returns: false if the kernel refuses to handle such memory, or all memory is
 *     locked
 */
bool calibrate(CostsKind kind, PolicyCosts *costs);

/*
 * What the page tables that the accelerator keeps for the guest cost, in
 * nanoseconds: what they add to a @fault of a granule that QEMU does not have,
 * what it takes to @map one that it has, and what is added to giving one back
 * (@unmap).
 */
typedef struct GuestCosts {
    double fault, map, unmap;
} GuestCosts;

/*
 * All 0 but for KVM, where that is measured with a guest made for it; if that
 * is impossible, the costs are taken to be as on common hosts.
 */
GuestCosts calibrate_guest(void);

/*
 * What it costs a guest, in nanoseconds, to write to a page that KVM's dirty
 * log watches; 0 but for KVM, otherwise as above.  That is of pages in order;
 * scattered ones were seen to take more than twice as long.
 */
double calibrate_write_fault(void);

#endif
