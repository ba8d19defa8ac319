/*
 * prim: a small guest that measures the cost of page faults
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "system/ram-reset/prim/kvm-guest.h"

#ifdef __x86_64__

#include <linux/kvm.h>
#include <sys/ioctl.h>

/* Guest addresses */
#define TABLES    0x1000
#define CODE      0x8000
#define LOW_SIZE  0x10000
#define NOWHERE   0x20000         /* a write to it ends the loop */
#define SCRATCH   (UINT64_C(1) << 30)
#define MAX_LEN   (UINT64_C(1) << 30)
#define LARGE     (UINT64_C(2) << 20)

/* Flags of page table entries: present, writable, user, accessed (and dirty) */
#define TABLE     0x27
#define LARGE_PAGE 0xe7

#define MAX_CPUID 256

struct PrimGuest {
    int kvm, vm, vcpu;
    uint8_t *low;
    void *host;
    uint64_t len;
    struct kvm_run *run;
    size_t run_size;
};

/* rdi: address, rsi: step, rcx: number of writes */
static const uint8_t code[] = {
    0xc6, 0x07, 0x00,                           /* movb $0, (%rdi) */
    0x48, 0x01, 0xf7,                           /* add %rsi, %rdi */
    0x48, 0xff, 0xc9,                           /* dec %rcx */
    0x75, 0xf5,                                 /* jnz, to the start */
    0x89, 0x04, 0x25, 0x00, 0x00, 0x02, 0x00,   /* mov %eax, NOWHERE */
};

static int set_slot(PrimGuest *g, unsigned slot, uint64_t addr, void *host,
                    uint64_t len, unsigned flags)
{
    struct kvm_userspace_memory_region region = {
        .slot = slot, .guest_phys_addr = addr, .memory_size = len,
        .userspace_addr = (uintptr_t)host, .flags = flags,
    };

    return ioctl(g->vm, KVM_SET_USER_MEMORY_REGION, &region);
}

/* Map the first 2 GiB one to one, in large pages */
static void fill_low(PrimGuest *g)
{
    uint64_t *table = (uint64_t *)(g->low + TABLES);

    table[0] = (TABLES + 0x1000) | TABLE;
    for (unsigned gib = 0; gib < 2; gib++) {
        table[512 + gib] = (TABLES + 0x2000 + gib * 0x1000) | TABLE;
        for (unsigned i = 0; i < 512; i++) {
            table[(2 + gib) * 512 + i] = (gib * SCRATCH + i * LARGE) |
                                         LARGE_PAGE;
        }
    }
    memcpy(g->low + CODE, code, sizeof(code));
}

static int set_cpuid(PrimGuest *g)
{
    g_autofree struct kvm_cpuid2 *cpuid =
        g_malloc0(sizeof(*cpuid) + MAX_CPUID * sizeof(cpuid->entries[0]));

    cpuid->nent = MAX_CPUID;
    if (ioctl(g->kvm, KVM_GET_SUPPORTED_CPUID, cpuid) < 0) {
        return -1;
    }
    return ioctl(g->vcpu, KVM_SET_CPUID2, cpuid);
}

static int set_ring3(PrimGuest *g)
{
    struct kvm_sregs sregs;
    struct kvm_segment data = {
        .limit = UINT32_MAX, .selector = 0x2b, .type = 3, .present = 1,
        .dpl = 3, .s = 1, .db = 1, .g = 1,
    };

    if (ioctl(g->vcpu, KVM_GET_SREGS, &sregs) < 0) {
        return -1;
    }
    sregs.cr0 = 0x80050033;         /* PG AM WP NE ET MP PE */
    sregs.cr3 = TABLES;
    sregs.cr4 = 0x220;              /* OSFXSR PAE */
    sregs.efer = 0xd01;             /* NX LMA LME SCE */
    sregs.ds = sregs.es = sregs.fs = sregs.gs = sregs.ss = data;
    sregs.cs = data;
    sregs.cs.selector = 0x33;
    sregs.cs.type = 11;
    sregs.cs.db = 0;
    sregs.cs.l = 1;
    return ioctl(g->vcpu, KVM_SET_SREGS, &sregs);
}

static int guest_make(PrimGuest *g, void *host, uint64_t len)
{
    g->host = host;
    g->len = len;
    g->kvm = open("/dev/kvm", O_RDWR | O_CLOEXEC);
    if (g->kvm < 0) {
        return -1;
    }
    g->vm = ioctl(g->kvm, KVM_CREATE_VM, 0);
    if (g->vm < 0) {
        return -1;
    }
    g->vcpu = ioctl(g->vm, KVM_CREATE_VCPU, 0);
    g->run_size = ioctl(g->kvm, KVM_GET_VCPU_MMAP_SIZE, 0);
    if (g->vcpu < 0) {
        return -1;
    }
    g->run = mmap(NULL, g->run_size, PROT_READ | PROT_WRITE, MAP_SHARED,
                  g->vcpu, 0);
    g->low = mmap(NULL, LOW_SIZE, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (g->run == MAP_FAILED || g->low == MAP_FAILED) {
        return -1;
    }
    fill_low(g);
    if (set_slot(g, 0, 0, g->low, LOW_SIZE, 0) < 0 ||
        set_slot(g, 1, SCRATCH, host, len, 0) < 0 || set_cpuid(g) < 0) {
        return -1;
    }
    return set_ring3(g);
}

PrimGuest *prim_guest_new(void *host, uint64_t len)
{
    PrimGuest *g = g_new0(PrimGuest, 1);
    int err = EINVAL;

    g->kvm = g->vm = g->vcpu = -1;
    g->run = MAP_FAILED;
    g->low = MAP_FAILED;
    if (len <= MAX_LEN) {
        if (guest_make(g, host, len) == 0) {
            return g;
        }
        err = errno;
    }
    prim_guest_free(g);
    errno = err;
    return NULL;
}

static void close_fd(int fd)
{
    if (fd >= 0) {
        close(fd);
    }
}

void prim_guest_free(PrimGuest *g)
{
    if (g->run != MAP_FAILED) {
        munmap(g->run, g->run_size);
    }
    close_fd(g->vcpu);
    close_fd(g->vm);
    close_fd(g->kvm);
    if (g->low != MAP_FAILED) {
        munmap(g->low, LOW_SIZE);
    }
    g_free(g);
}

int prim_guest_touch(PrimGuest *g, uint64_t start, uint64_t step,
                     uint64_t count)
{
    struct kvm_regs regs = {
        .rip = CODE, .rflags = 2,
        .rdi = SCRATCH + start, .rsi = step, .rcx = count,
    };

    if (ioctl(g->vcpu, KVM_SET_REGS, &regs) < 0) {
        return -errno;
    }
    while (ioctl(g->vcpu, KVM_RUN, 0) < 0) {
        if (errno != EINTR && errno != EAGAIN) {
            return -errno;
        }
    }
    return g->run->exit_reason == KVM_EXIT_MMIO &&
           g->run->mmio.phys_addr == NOWHERE ? 0 : -EIO;
}

int prim_guest_protect(PrimGuest *g)
{
    unsigned log = KVM_MEM_LOG_DIRTY_PAGES;

    /* KVM protects the pages when the log is switched on */
    return set_slot(g, 1, SCRATCH, g->host, g->len, 0) < 0 ||
           set_slot(g, 1, SCRATCH, g->host, g->len, log) < 0 ? -errno : 0;
}

#else

PrimGuest *prim_guest_new(void *host, uint64_t len)
{
    errno = ENOSYS;
    return NULL;
}

void prim_guest_free(PrimGuest *guest)
{
}

int prim_guest_touch(PrimGuest *guest, uint64_t start, uint64_t step,
                     uint64_t count)
{
    return -ENOSYS;
}

int prim_guest_protect(PrimGuest *guest)
{
    return -ENOSYS;
}

#endif
