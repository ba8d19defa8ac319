/*
 * RAM reset: KVM's part of the dirty log
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef RAM_RESET_REWIND_DIRTY_KVM_H
#define RAM_RESET_REWIND_DIRTY_KVM_H

#include "exec/cpu-common.h"

/* With the BQL held.  Without KVM, these do nothing that matters. */

/*
 * Whether KVM_DIRTY_LOG_INITIALLY_SET is on from now on; it is at first.
 *
 * Returns: whether it was before
 */
bool dirty_kvm_initially_set(bool set);

/*
 * Pages of @rb whose bits are set in @untracked, one for each target page, stay
 * writable when the log is cleared next: KVM's copies of the log lose their
 * bits, and what is not in a slot's copy is not cleared in KVM's bitmap.
 *
 * Nobody else may clear slots' logs meanwhile.  Does nothing where KVM cannot
 * do without those pages.
 */
void dirty_kvm_spare(RAMBlock *rb, const unsigned long *untracked);

/*
 * Whether a vCPU with a dirty ring has been unplugged.  From then on, what is
 * written is not all known.
 */
bool dirty_kvm_lost_ring(void);

#endif
