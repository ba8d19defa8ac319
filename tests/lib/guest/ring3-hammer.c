/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Ring-3 test guest: hammers the snapctl device with random accesses, see
 * "hammer" in ring3-snapctl.c.
 */

#include "ring3-snapctl.h"

#define MSIX_SIZE       0x1000
#define MSIX_ADDRESS    8       /* bytes of it, at the table's beginning */
#define MSIX_DATA       8
#define MSIX_CONTROL    12
#define MSIX_ENABLE     0x80000000u

/* Half of them such that one or two registers take them as they are */
static uint64_t draw_value(volatile Region *r)
{
    uint64_t x = snapctl_draw(r);

    return x & 1 ? x & 0x300000006 : snapctl_draw(r);
}

static void hammer_regs(const Snapctl *s, volatile Region *r)
{
    uint64_t x = snapctl_draw(r);
    unsigned size = 1 << (x & 3);
    uint64_t end = x & 4 ? SNAPCTL_REGS_SIZE
                         : SNAPCTL_RANDOM + SNAPCTL_RANDOM_SIZE;
    uint64_t offset = (x >> 8) % (end - size + 1);

    if (x & 0x18) {
        offset &= -(uint64_t)size;
    }
    if (x & 0x20) {
        snapctl_write(s, offset, draw_value(r), size);
    } else {
        snapctl_read(s, offset, size);
    }
}

/* Slots and commands are there, but for one in 16 */
static void hammer_command(const Snapctl *s, volatile Region *r)
{
    uint64_t x = snapctl_draw(r);
    uint32_t command = x & 0x300 ? SNAPCTL_COMMAND_LOAD : SNAPCTL_COMMAND_SAVE;

    snapctl_write(s, SNAPCTL_SLOT, x % 16 ? (x >> 4) % 2 : x >> 32, 4);
    snapctl_write(s, SNAPCTL_COMMAND, (x >> 16) % 16 ? command : x >> 32, 4);
    if (x & 0x80) {
        snapctl_wait(s);
    }
}

/*
 * The messages that loads send go where they overwrite nothing, or the guest
 * would do damage to itself: to the page right behind the pairs.
 */
static void enable_msix(const Snapctl *s, uint64_t scratch)
{
    uint32_t capability = config_read(s->devfn, PCI_CAPABILITIES) & 0xff;
    uint64_t entry = s->bar[SNAPCTL_MSIX_BAR];

    write_sized(entry, scratch, 8);
    write_sized(entry + MSIX_DATA, 0x5aa5c33c, 4);
    write_sized(entry + MSIX_CONTROL, 0, 4);
    config_write(s->devfn, capability, MSIX_ENABLE);
}

static void hammer_msix(const Snapctl *s, volatile Region *r, uint64_t scratch)
{
    uint64_t x = snapctl_draw(r);
    unsigned size = 1 << (x & 3);
    uint64_t offset = (x >> 8) % (x & 4 ? 32 : MSIX_SIZE - size + 1);
    uint64_t addr = s->bar[SNAPCTL_MSIX_BAR];

    if (offset < MSIX_ADDRESS) {
        write_sized(addr, scratch + ((x >> 32) & 0xffc), 8);
    } else {
        write_sized(addr + offset, draw_value(r), size);
    }
}

/*
 * Any register, but the region does not go where QEMU's and KVM's own memory
 * is, nor beyond what the host's CPU can address: KVM would not take it.
 */
static void hammer_config(const Snapctl *s, volatile Region *r)
{
    uint64_t x = snapctl_draw(r);
    uint32_t offset = x % CONFIG_SIZE & ~3u;
    uint32_t value = x >> 32;

    if (offset == PCI_BAR(SNAPCTL_REGION_BAR)) {
        value &= 0x7fffffff;
    } else if (offset == PCI_BAR(SNAPCTL_REGION_BAR) + 4) {
        value &= 0xf;
    }
    config_read(s->devfn, offset);
    config_write(s->devfn, offset, value);
    snapctl_map(s);
}

void snapctl_hammer(const Snapctl *s, uint64_t steps, uint64_t seed,
                    uint64_t addr, uint64_t pages)
{
    volatile Region *r = snapctl_region(s);
    uint64_t scratch = addr + pages * PAGE_SIZE;

    set(addr, pages * PAGE_SIZE, 0);
    r->random = seed;
    r->steps = 0;
    r->stop = 0;
    enable_msix(s, scratch);
    do {
        while (r->steps < steps && !r->stop) {
            uint64_t kind = snapctl_draw(r) % 128;

            __atomic_add_fetch(&r->steps, 1, __ATOMIC_RELAXED);
            if (!snapctl_pair(r, addr, pages)) {
                return;
            }
            if (kind < 2) {
                hammer_config(s, r);
            } else if (kind < 8) {
                hammer_msix(s, r, scratch);
            } else if (kind < 10) {
                hammer_command(s, r);
            } else {
                hammer_regs(s, r);
            }
        }
        /* what the last step has asked for may lead back into the loop */
        snapctl_wait(s);
    } while (r->steps < steps && !r->stop);
    answer("ok", r->steps);
}
