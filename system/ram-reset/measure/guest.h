/*
 * Measuring: what a guest pays for what is done to its memory
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef RAM_RESET_MEASURE_GUEST_H
#define RAM_RESET_MEASURE_GUEST_H

/*
 * All of that is 0 but for KVM, where it is measured with a guest made for it,
 * in some milliseconds and in this thread.  If that guest cannot be had, costs
 * are taken to be as on common hosts.
 */

/**
 * GuestCosts: what the page tables that the accelerator keeps for the guest
 * cost, in nanoseconds
 *
 * @fault: what they add to a fault of a granule that QEMU does not have
 * @map: the guest touches a granule that QEMU has
 * @unmap: what they add to discarding a granule
 */
typedef struct GuestCosts {
    double fault, map, unmap;
} GuestCosts;

GuestCosts measure_guest(void);

/**
 * measure_write_fault: what a guest pays, in nanoseconds, to write to a page
 * that KVM's dirty log watches
 *
 * That is of pages in order; scattered ones were seen to take more than twice
 * as long.
 */
double measure_write_fault(void);

#endif
