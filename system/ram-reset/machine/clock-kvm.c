/*
 * The clock of vCPUs that a load sets back: the TSC under KVM
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
#include "system/ram-reset/machine/clock.h"

#if defined(CONFIG_KVM) && defined(TARGET_I386)
/* No guest's TSC comes near it: it is centuries away */
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

    /* if KVM refuses it, the TSC is a little ahead, as without this code */
    kvm_vcpu_ioctl(cpu, KVM_SET_MSRS, &msr);
}

/*
 * KVM compares a TSC with the value that the TSC set last would have by now.
 * It ignores one that is less than a second away, as an attempt to synchronize
 * vCPUs.  The reset has set the TSC to 1, so KVM would ignore the TSC of each
 * snapshot of a guest's first second.  QEMU sets the TSC of the first vCPU
 * first; KVM then synchronizes the other vCPUs with it, as it should.
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
