/*
 * RAM reset: KVM's part of the dirty log
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef RAM_RESET_REWIND_DIRTY_KVM_H
#define RAM_RESET_REWIND_DIRTY_KVM_H

#include "exec/cpu-common.h"

/* All functions: BQL held.  They have no effect without KVM. */

/*
 * Switch KVM_DIRTY_LOG_INITIALLY_SET on or off.  It is on at first.
 *
 * Returns: the previous setting
 */
bool dirty_kvm_initially_set(bool set);

/*
 * Leave pages of @rb writable when the log is cleared next.  @untracked has a
 * bit for each target page.  The copies of the log in slots lose these bits,
 * and KVM only protects pages that a copy has.
 *
 * Nobody else may clear slots' logs meanwhile.  Does nothing if KVM cannot
 * exclude pages.
 */
void dirty_kvm_spare(RAMBlock *rb, const unsigned long *untracked);

/*
 * Whether a vCPU with a dirty ring has been unplugged.  The log may lack writes
 * from then on.
 */
bool dirty_kvm_lost_ring(void);

#endif
