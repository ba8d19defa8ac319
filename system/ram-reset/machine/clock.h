/*
 * The clocks of vCPUs that a load sets back
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef RAM_RESET_MACHINE_CLOCK_H
#define RAM_RESET_MACHINE_CLOCK_H

/*
 * KVM prevents the time stamp counter from going back.  A load has to make it
 * go back.  Called with the BQL held, and with vCPUs stopped.
 */

/**
 * ram_reset_tsc_kvm_begin: let KVM not take the next TSC that is set for an
 * attempt to synchronize vCPUs
 *
 * To be called between the system reset and the load of vCPUs.
 */
void ram_reset_tsc_kvm_begin(void);

#endif
