/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A KVM that can set the TSC of each vCPU, as hardware with TSC offsets has
 * one, for a QEMU that this is preloaded into.  A KVM in software shows guests
 * the host's TSC, and takes no other.
 *
 * For each time that QEMU sets one, a line of the log has
 *
 *     tsc VCPU WANTED SET OFFSET
 *
 * VCPU is a file descriptor, SET the TSC right after, OFFSET what it has over
 * the host's.  The guest itself goes on with the host's.
 */

#include <linux/kvm.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define MSR_TSC 0x10
#define VCPUS   4096

/* A second of these clocks takes a minute */
#define HZ      1000000000
#define SLOWER  60

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int64_t offsets[VCPUS];

/* The TSC that was set last, on whichever vCPU, and when */
static struct {
    bool any;
    int64_t tsc, host, offset;
} last;

static int64_t host_tsc(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return ((int64_t)t.tv_sec * HZ + t.tv_nsec) / SLOWER;
}

/*
 * Documentation of KVM_VCPU_TSC_OFFSET has it that setting the MSR is
 * ambiguous: within a second of what the TSC that was set last would be now,
 * it means to set the same offset.
 */
static void set_tsc(int fd, int64_t wanted)
{
    int64_t now = host_tsc();
    int64_t expected = last.tsc + now - last.host;
    bool same = last.any && (!wanted || (wanted < expected + HZ &&
                                         expected < wanted + HZ));

    offsets[fd] = same ? last.offset : wanted - now;
    last.any = true;
    last.tsc = wanted;
    last.host = now;
    last.offset = offsets[fd];
    dprintf(STDERR_FILENO, "tsc %d %lld %lld %lld\n", fd, (long long)wanted,
            (long long)(now + offsets[fd]), (long long)offsets[fd]);
}

static void msrs(int fd, unsigned long request, struct kvm_msrs *list)
{
    pthread_mutex_lock(&lock);
    for (uint32_t i = 0; i < list->nmsrs; i++) {
        struct kvm_msr_entry *entry = &list->entries[i];

        if (entry->index == MSR_TSC && request == KVM_SET_MSRS) {
            set_tsc(fd, entry->data);
        } else if (entry->index == MSR_TSC) {
            entry->data = host_tsc() + offsets[fd];
        }
    }
    pthread_mutex_unlock(&lock);
}

int ioctl(int fd, unsigned long request, ...)
{
    va_list args;
    unsigned long arg;
    int result;

    va_start(args, request);
    arg = va_arg(args, unsigned long);
    va_end(args);
    result = syscall(SYS_ioctl, fd, request, arg);
    /* the system's list of MSRs that have features comes by another file */
    if (result > 0 && fd < VCPUS &&
        (request == KVM_GET_MSRS || request == KVM_SET_MSRS)) {
        msrs(fd, request, (struct kvm_msrs *)arg);
    }
    return result;
}
