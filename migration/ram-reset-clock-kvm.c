/*
 * Clocks of vCPUs that a load takes back: the TSC under KVM
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "system/kvm.h"
#include "hw/core/cpu.h"
#if defined(CONFIG_KVM) && defined(TARGET_I386)
#include "cpu.h"
#include <linux/kvm.h>
#endif
#include "migration/ram-reset-clock.h"

#if defined(CONFIG_KVM) && defined(TARGET_I386)
/* Centuries from where any guest's is; and no time that passes gets there */
#define FAR_TSC (1ULL << 62)

static void set_far(CPUState *cpu, run_on_cpu_data unused)
{
    struct {
        struct kvm_msrs info;
        struct kvm_msr_entry entry;
    } msr = {
        .info.nmsrs = 1,
        .entry = { .index = MSR_IA32_TSC, .data = FAR_TSC },
    };

    /* if KVM does not take it the TSC is a little ahead, as without this */
    kvm_vcpu_ioctl(cpu, KVM_SET_MSRS, &msr);
}

/*
 * KVM ignores a TSC that is less than a second from what the one that was set
 * last would be by now: it takes that for an attempt to synchronize vCPUs.  The
 * reset has set it to 1, so all snapshots of a guest's first second are such.
 * QEMU sets the TSC of the first vCPU first; KVM does synchronize the others
 * with it, as it should.
 */
void ram_reset_tsc_kvm_begin(void)
{
    if (kvm_enabled() && first_cpu) {
        run_on_cpu(first_cpu, set_far, RUN_ON_CPU_NULL);
    }
}
#else
void ram_reset_tsc_kvm_begin(void)
{
}
#endif
