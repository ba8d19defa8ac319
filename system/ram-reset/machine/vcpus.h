/*
 * vCPUs while their threads wait
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef RAM_RESET_MACHINE_VCPUS_H
#define RAM_RESET_MACHINE_VCPUS_H

#include "hw/core/cpu.h"

/*
 * QEMU lets a vCPU's own thread do all work on the vCPU, and waits for it.  A
 * load does so about nine times for each vCPU, and each time wakes up two
 * threads.  While all vCPUs are stopped, their threads do nothing else, so the
 * thread that would wait can do the work itself: it borrows the vCPUs.  Only
 * some accelerators and architectures are known to allow that.
 */

/**
 * ram_reset_vcpus_are_known: whether these vCPUs may be borrowed at all
 */
bool ram_reset_vcpus_are_known(void);

/**
 * ram_reset_vcpus_borrow: until they are returned, run_on_cpu() is a call
 *
 * Does nothing unless all vCPUs are stopped, and have no queued work left.  The
 * BQL is held; the function may release it.  Calls may be nested.
 *
 * QEMU releases the BQL twice while a load has borrowed vCPUs, to wait for
 * threads of the load.  A vCPU's own thread must then find nothing to do: no
 * cpu->stop, and no queued work that depends on cpu->thread.
 */
void ram_reset_vcpus_borrow(void);

/**
 * ram_reset_vcpus_return: the counterpart of ram_reset_vcpus_borrow()
 */
void ram_reset_vcpus_return(void);

/**
 * ram_reset_vcpus_begin_reset: the system reset of a load begins
 *
 * If the load writes all state of a vCPU, its state is not read from KVM before
 * the reset, and not written after it.
 */
void ram_reset_vcpus_begin_reset(void);

/**
 * ram_reset_vcpus_end_reset: the system reset has ended
 */
void ram_reset_vcpus_end_reset(void);

/**
 * ram_reset_vcpu_skip_read: treat QEMU's state of a vCPU as current, without
 * reading it from KVM
 *
 * Returns: false if KVM has state that the load does not write
 */
bool ram_reset_vcpu_skip_read(CPUState *cpu);

/**
 * ram_reset_vcpu_clear: clear the state that a load does not write, in a vCPU
 * of ram_reset_vcpu_skip_read()
 */
void ram_reset_vcpu_clear(CPUState *cpu);

/**
 * ram_reset_vcpu_is_for_later: whether a vCPU may be written in any order
 *
 * @first: the vCPU that has been written first
 *
 * Returns: true if KVM takes both loaded TSCs for one in either order, and the
 *     vCPU has no state of the VM's
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
 * ram_reset_vcpus_at_stop: from now on, borrow vCPUs also for the work of
 * devices at a stop and at a resume of the guest
 */
void ram_reset_vcpus_at_stop(void);

#endif
