/*
 * vCPUs of KVM: a load replaces all of their state
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "hw/core/cpu.h"
#include "qapi/error.h"
#include "system/ram-reset/machine/vcpus.h"

#if defined(CONFIG_KVM) && defined(TARGET_I386)
#include "cpu.h"
#include "hw/xen/xen.h"
#include "system/kvm.h"
#include "system/kvm_int.h"
#include <linux/kvm.h>
#include "standard-headers/asm-x86/kvm_para.h"

bool ram_reset_vcpus_are_known(void)
{
    return kvm_enabled();
}

bool ram_reset_vcpu_exits_at_once(void)
{
    static int has = -1;

    if (has < 0) {
        has = kvm_check_extension(kvm_state, KVM_CAP_IMMEDIATE_EXIT) > 0;
    }
    return has;
}

/*
 * A reset of the vCPU may end more of KVM's state, or the order of writes may
 * matter.  QEMU reads and writes such a vCPU as it always does.
 */
static bool has_more_state(X86CPU *cpu)
{
    CPUX86State *env = &cpu->env;

    return cpu_has_vmx(env) || cpu_has_svm(env) || cpu->enable_pmu ||
           cpu->hyperv_features || cpu->hyperv_passthrough ||
           (env->features[FEAT_7_0_EBX] & CPUID_7_0_EBX_INTEL_PT) ||
           (env->features[FEAT_7_0_ECX] & CPUID_7_0_ECX_SGX_LC) ||
           (env->features[FEAT_XSAVE] & CPUID_D_1_EAX_XFD);
}

bool ram_reset_vcpu_skip_read(CPUState *cs)
{
    X86CPU *cpu = X86_CPU(cs);
    CPUX86State *env = &cpu->env;
    struct kvm_vcpu_events events;
    struct kvm_mp_state mp_state;

    if (!kvm_enabled() || !kvm_irqchip_in_kernel() || cs->vcpu_dirty ||
        kvm_state->guest_state_protected || xen_mode != XEN_DISABLED ||
        !QLIST_EMPTY(&kvm_state->kvm_parked_vcpus) || has_more_state(cpu)) {
        return false;
    }
    /*
     * KVM handles a pending NMI, SMI, INIT or SIPI when QEMU reads these.
     * Setting state does not end all of them.
     */
    if (kvm_vcpu_ioctl(cs, KVM_GET_VCPU_EVENTS, &events) < 0 ||
        kvm_vcpu_ioctl(cs, KVM_GET_MP_STATE, &mp_state) < 0) {
        return false;
    }
    /* no reset clears these, and a snapshot lacks them if they are 0 */
    env->xss = 0;
    env->umwait = 0;
    env->mcg_ext_ctl = 0;
    /* do not read a loaded TSC from KVM before the guest runs */
    env->tsc_valid = true;
    cs->vcpu_dirty = true;
    return true;
}

void ram_reset_vcpu_clear(CPUState *cs)
{
    struct {
        struct kvm_msrs info;
        struct kvm_msr_entry entry;
    } msr = {
        .info.nmsrs = 1,
        .entry = { .index = MSR_KVM_ASYNC_PF_EN },
    };

    /* KVM would report the end of page faults to the guest */
    if (cpu_env(cs)->features[FEAT_KVM] & CPUID_KVM_ASYNCPF) {
        kvm_vcpu_ioctl(cs, KVM_SET_MSRS, &msr);
    }
}

/*
 * KVM allows a second, but compares with the TSC that was written last.  A
 * third of a second leaves room for any two vCPUs, and for the time of the
 * writes.
 *
 * The wall clock is the VM's: KVM writes it to the address that the last vCPU
 * has named.
 */
bool ram_reset_vcpu_is_for_later(CPUState *cs, CPUState *first)
{
    CPUX86State *env = cpu_env(cs), *first_env = cpu_env(first);
    int64_t ahead = env->tsc - first_env->tsc;

    return !env->wall_clock_msr &&
           llabs(ahead) < first_env->tsc_khz * 1000 / 3;
}

void ram_reset_vcpu_put(CPUState *cs)
{
    Error *err = NULL;

    if (!kvm_arch_put_registers(cs, KVM_PUT_FULL_STATE, &err)) {
        cs->vcpu_dirty = false;
    }
    error_free(err);
}
#else
bool ram_reset_vcpus_are_known(void)
{
    return false;
}

bool ram_reset_vcpu_exits_at_once(void)
{
    return false;
}

bool ram_reset_vcpu_skip_read(CPUState *cs)
{
    return false;
}

void ram_reset_vcpu_clear(CPUState *cs)
{
}

bool ram_reset_vcpu_is_for_later(CPUState *cs, CPUState *first)
{
    return false;
}

void ram_reset_vcpu_put(CPUState *cs)
{
}
#endif
