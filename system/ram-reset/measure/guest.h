/*
 * Measuring: the additional costs for a guest
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef RAM_RESET_MEASURE_GUEST_H
#define RAM_RESET_MEASURE_GUEST_H

/*
 * All these costs are 0 except with KVM.  There they are measured in this
 * thread with a guest made for it, which takes some milliseconds.  If that
 * guest cannot be made, the costs of common hosts are assumed.
 */

/**
 * GuestCosts: costs of the page tables that the accelerator has for the guest,
 * in nanoseconds
 *
 * @fault: added to a fault of a granule that QEMU does not have
 * @map: the guest touches a granule that QEMU has
 * @unmap: added to discarding a granule
 */
typedef struct GuestCosts {
    double fault, map, unmap;
} GuestCosts;

GuestCosts measure_guest(void);

/**
 * measure_write_fault: time that a guest's write takes to a page in KVM's dirty
 * log, in nanoseconds
 *
 * The pages are measured in order; scattered ones were seen to take more than
 * twice as long.
 */
double measure_write_fault(void);

#endif
