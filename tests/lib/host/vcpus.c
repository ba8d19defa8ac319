/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * KVM's state of each vCPU when QEMU has written it, for a QEMU that this is
 * preloaded into.
 *
 * A line of the log has "vcpu FD NAME VALUE" for all that KVM can be asked for:
 * MSRs by their number, other state by a sum of its bytes.  "vcpu FD get" and
 * "vcpu FD put" say that QEMU has begun to read its state, and has written it.
 * When QEMU reads the clock, which it does when the guest is stopped, each vCPU
 * gets an NMI and an SMI that are not the snapshot's.
 */

#include <fcntl.h>
#include <linux/kvm.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define MSR_TSC     0x10
#define VCPUS       4096
#define MSRS        1024

static char is_vcpu[VCPUS];

static long call(int fd, unsigned long request, void *arg)
{
    return syscall(SYS_ioctl, fd, request, arg);
}

static const struct kvm_msr_list *msr_list(void)
{
    static struct {
        struct kvm_msr_list info;
        uint32_t indices[MSRS];
    } list;

    if (!list.info.nmsrs) {
        int fd = open("/dev/kvm", O_RDWR);

        list.info.nmsrs = MSRS;
        if (call(fd, KVM_GET_MSR_INDEX_LIST, &list) < 0) {
            abort();
        }
        close(fd);
    }
    return &list.info;
}

static void log_msrs(int fd)
{
    const struct kvm_msr_list *list = msr_list();

    for (uint32_t i = 0; i < list->nmsrs; i++) {
        struct {
            struct kvm_msrs info;
            struct kvm_msr_entry entry;
        } msr = { { .nmsrs = 1 }, { .index = list->indices[i] } };

        /* the guest's time does not stand still */
        if (list->indices[i] != MSR_TSC &&
            call(fd, KVM_GET_MSRS, &msr) == 1) {
            dprintf(STDERR_FILENO, "vcpu %d msr-%x %llx\n", fd,
                    msr.entry.index, (unsigned long long)msr.entry.data);
        }
    }
}

static void log_sum(int fd, const char *name, unsigned long request)
{
    static unsigned char buf[16384];
    uint64_t sum = 0xcbf29ce484222325;

    for (size_t i = 0; i < sizeof(buf); i++) {
        buf[i] = 0;
    }
    if (call(fd, request, buf) < 0) {
        return;
    }
    for (size_t i = 0; i < sizeof(buf); i++) {
        sum = (sum ^ buf[i]) * 0x100000001b3;
    }
    dprintf(STDERR_FILENO, "vcpu %d %s %llx\n", fd, name,
            (unsigned long long)sum);
}

/* The thread has the BQL */
static void log_state(int fd)
{
    log_sum(fd, "events", KVM_GET_VCPU_EVENTS);
    log_sum(fd, "mp-state", KVM_GET_MP_STATE);
    log_sum(fd, "regs", KVM_GET_REGS);
    log_sum(fd, "sregs", KVM_GET_SREGS);
    log_sum(fd, "xsave", KVM_GET_XSAVE);
    log_sum(fd, "xcrs", KVM_GET_XCRS);
    log_sum(fd, "debugregs", KVM_GET_DEBUGREGS);
    log_sum(fd, "lapic", KVM_GET_LAPIC);
    log_msrs(fd);
    dprintf(STDERR_FILENO, "vcpu %d put\n", fd);
}

static void disturb(void)
{
    for (int fd = 0; fd < VCPUS; fd++) {
        if (is_vcpu[fd]) {
            call(fd, KVM_NMI, NULL);
            call(fd, KVM_SMI, NULL);
        }
    }
}

int ioctl(int fd, unsigned long request, ...)
{
    va_list args;
    void *arg;
    int result;

    va_start(args, request);
    arg = va_arg(args, void *);
    va_end(args);
    result = call(fd, request, arg);
    if (request == KVM_CREATE_VCPU && result >= 0 && result < VCPUS) {
        is_vcpu[result] = 1;
    } else if (request == KVM_GET_CLOCK) {
        disturb();
    } else if (request == KVM_GET_REGS) {
        dprintf(STDERR_FILENO, "vcpu %d get\n", fd);
    } else if (request == KVM_SET_DEBUGREGS && result >= 0) {
        /* the last part of it */
        log_state(fd);
    }
    return result;
}
