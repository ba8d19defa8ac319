/*
 * vCPUs while their threads wait
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef MIGRATION_RAM_RESET_VCPUS_H
#define MIGRATION_RAM_RESET_VCPUS_H

#include "hw/core/cpu.h"

/*
 * QEMU has a vCPU's own thread do what is done to the vCPU, and waits for it.
 * A load does that about nine times, one vCPU after the other, and each wakes
 * up two threads.  While all vCPUs are stopped their threads do nothing else,
 * so the thread that would wait can do it itself.  Only with accelerators and
 * architectures that are known to allow that.
 */

/**
 * ram_reset_vcpus_are_known: whether these vCPUs may be borrowed at all
 */
bool ram_reset_vcpus_are_known(void);

/**
 * ram_reset_vcpus_borrow: until they are returned, run_on_cpu() is a call
 *
 * Does nothing unless all vCPUs are stopped, and have done what was queued for
 * them.  To be called with the BQL held, which it may release.  May be nested.
 *
 * QEMU releases the BQL twice while a load has borrowed them, to wait for
 * threads of the load.  A vCPU's own thread must then find nothing to do: no
 * cpu->stop, and nothing that is queued and depends on cpu->thread.
 */
void ram_reset_vcpus_borrow(void);

/**
 * ram_reset_vcpus_return: the counterpart of ram_reset_vcpus_borrow()
 */
void ram_reset_vcpus_return(void);

/**
 * ram_reset_vcpus_begin_reset: the system reset of a load begins
 *
 * The state of a vCPU is not read from KVM, nor is what it is after the reset
 * written, if the load writes all of it.
 */
void ram_reset_vcpus_begin_reset(void);

/**
 * ram_reset_vcpus_end_reset: it has ended
 */
void ram_reset_vcpus_end_reset(void);

/**
 * ram_reset_vcpu_forget: take a vCPU's state for QEMU's, without reading it
 *
 * Returns: false if KVM has state that the load does not write
 */
bool ram_reset_vcpu_forget(CPUState *cpu);

/**
 * ram_reset_vcpu_clear: end what else the reset of a forgotten vCPU would
 */
void ram_reset_vcpu_clear(CPUState *cpu);

/**
 * ram_reset_vcpu_is_for_later: whether a vCPU may be written in any order
 *
 * @first: that has been written
 *
 * Returns: true if KVM takes both TSCs, as they have been loaded, for one, in
 * whichever order they are written, and the vCPU has nothing of the VM's
 */
bool ram_reset_vcpu_is_for_later(CPUState *cpu, CPUState *first);

/**
 * ram_reset_vcpu_put: write all state of a vCPU, without the BQL
 *
 * The state stays dirty if that fails.
 */
void ram_reset_vcpu_put(CPUState *cpu);

/**
 * ram_reset_vcpu_exits_at_once: whether KVM_RUN can be made to end without a
 * signal
 */
bool ram_reset_vcpu_exits_at_once(void);

/**
 * ram_reset_vcpus_at_stop: from now on, also what devices do when the guest is
 * stopped, and when it goes on
 */
void ram_reset_vcpus_at_stop(void);

#endif
