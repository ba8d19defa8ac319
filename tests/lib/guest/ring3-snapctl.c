/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Ring-3 test guest: drives the snapctl device, see docs/specs/snapctl.rst.
 *
 * Without the device each of these answers "error".  Numbers are hexadecimal;
 * SIZE is 1, 2, 4 or 8 bytes, 4 if it is left out.
 *
 *   snap-where                      "ok BAR0 BAR1 BAR2", addresses
 *   snap-read OFFSET [SIZE]         "ok VALUE", of a register
 *   snap-write OFFSET VALUE [SIZE]  "ok"
 *   snap SLOT COMMAND               "ok STATUS ERROR GENERATION" once STATUS is
 *                                   no longer "pending".  After a load a guest
 *                                   is back in the "snap" that has saved, which
 *                                   answers once more
 *   snap-loop COUNT SLOT ADDR PAGES "ok GENERATION" after COUNT loads, or once
 *                                   the host writes to Region.stop.  Saves, and
 *                                   after each load finds the pages as they
 *                                   were saved, or says '!'
 *   snap-work ROUND ADDR PAGES      "ok ROUND".  The work of snap-loop between
 *                                   two loads, for a host that loads
 *   snap-repeat SLOT COMMAND        nothing.  The command again and again; if it
 *                                   is to load, a save comes before
 *   hammer STEPS SEED ADDR PAGES    "ok STEPS".  Random accesses of all kinds,
 *                                   until there have been that many, or the
 *                                   host writes to Region.stop.  The pages hold
 *                                   pairs that are always equal, or it says
 *                                   '!'; the page behind them is scratch
 *
 * snap-loop, snap-repeat and hammer need the persistent region, where they keep
 * state that loads must not take back.  hammer is in ring3-hammer.c.
 */

#include "ring3-snapctl.h"

#define MSIX_PLACE      0xf0010000

uint64_t snapctl_read(const Snapctl *s, uint64_t offset, unsigned size)
{
    uint64_t addr = s->bar[SNAPCTL_REGS_BAR] + offset;

    switch (size) {
    case 1:
        return *(volatile uint8_t *)addr;
    case 2:
        return *(volatile uint16_t *)addr;
    case 8:
        return *(volatile uint64_t *)addr;
    default:
        return *(volatile uint32_t *)addr;
    }
}

void write_sized(uint64_t addr, uint64_t value, unsigned size)
{
    switch (size) {
    case 1:
        *(volatile uint8_t *)addr = value;
        break;
    case 2:
        *(volatile uint16_t *)addr = value;
        break;
    case 8:
        *(volatile uint64_t *)addr = value;
        break;
    default:
        *(volatile uint32_t *)addr = value;
    }
}

void snapctl_write(const Snapctl *s, uint64_t offset, uint64_t value,
                   unsigned size)
{
    write_sized(s->bar[SNAPCTL_REGS_BAR] + offset, value, size);
}

void snapctl_map(const Snapctl *s)
{
    config_write(s->devfn, PCI_COMMAND, 0);
    config_write(s->devfn, PCI_BAR(SNAPCTL_REGS_BAR), s->bar[SNAPCTL_REGS_BAR]);
    config_write(s->devfn, PCI_BAR(SNAPCTL_MSIX_BAR), s->bar[SNAPCTL_MSIX_BAR]);
    config_write(s->devfn, PCI_BAR(SNAPCTL_REGION_BAR), s->bar[SNAPCTL_REGION_BAR]);
    config_write(s->devfn, PCI_BAR(SNAPCTL_REGION_BAR) + 4,
                 s->bar[SNAPCTL_REGION_BAR] >> 32);
    config_write(s->devfn, PCI_COMMAND, MEMORY | MASTER);
}

/* Finds the BARs that the firmware has set, or sets them */
static void locate(Snapctl *s)
{
    if (config_read(s->devfn, PCI_COMMAND) & MEMORY) {
        for (int i = 0; i < BARS; i++) {
            s->bar[i] = config_read(s->devfn, PCI_BAR(i)) & ~BAR_FLAGS;
        }
        s->bar[SNAPCTL_REGION_BAR] |=
            (uint64_t)config_read(s->devfn, PCI_BAR(SNAPCTL_REGION_BAR) + 4) << 32;
    } else {
        s->bar[SNAPCTL_REGS_BAR] = REGS_PLACE;
        s->bar[SNAPCTL_MSIX_BAR] = MSIX_PLACE;
        s->bar[SNAPCTL_REGION_BAR] = REGION_PLACE;
        snapctl_map(s);
    }
}

bool snapctl_find(Snapctl *s)
{
    const uint32_t id = SNAPCTL_PCI_DEVICE_ID << 16 | SNAPCTL_PCI_VENDOR_ID;

    for (s->devfn = 0; s->devfn < 256; s->devfn += 8) {
        if (config_read(s->devfn, PCI_ID) == id) {
            locate(s);
            return snapctl_read(s, SNAPCTL_MAGIC, 4) == SNAPCTL_MAGIC_VALUE;
        }
    }
    return false;
}

volatile Region *snapctl_region(const Snapctl *s)
{
    bool there = snapctl_read(s, SNAPCTL_FEATURES, 4) & SNAPCTL_FEATURE_REGION;

    return there ? (volatile Region *)s->bar[SNAPCTL_REGION_BAR] : NULL;
}

uint32_t snapctl_wait(const Snapctl *s)
{
    uint32_t status;

    while ((status = snapctl_read(s, SNAPCTL_STATUS, 4)) ==
           SNAPCTL_STATUS_PENDING) {
        asm volatile("pause");
    }
    return status;
}

static void answer_command(const Snapctl *s, uint32_t slot, uint32_t command)
{
    uint64_t outcome[3];

    snapctl_write(s, SNAPCTL_SLOT, slot, 4);
    snapctl_write(s, SNAPCTL_COMMAND, command, 4);
    outcome[0] = snapctl_wait(s);
    outcome[1] = snapctl_read(s, SNAPCTL_ERROR, 4);
    outcome[2] = snapctl_read(s, SNAPCTL_GENERATION, 8);
    answer_ok(outcome, 3);
}

/* Both registers at once; asks again for as long as the device says "wait" */
uint32_t snapctl_command(const Snapctl *s, volatile Region *r,
                             uint32_t slot, uint32_t command)
{
    for (;;) {
        uint32_t status, error;

        snapctl_write(s, SNAPCTL_SLOT, (uint64_t)command << 32 | slot, 8);
        status = snapctl_wait(s);
        error = snapctl_read(s, SNAPCTL_ERROR, 4);
        if (status != SNAPCTL_STATUS_REFUSED ||
            (error != SNAPCTL_ERROR_TOO_SOON && error != SNAPCTL_ERROR_BUSY)) {
            return status;
        }
        r->refused++;
    }
}

static void snap_work(uint64_t round, uint64_t addr, uint64_t pages)
{
    if (snapshot_is_whole(addr, pages)) {
        make_dirty(addr, pages, round);
        answer("ok", round);
    }
}

static void snap_loop(const Snapctl *s, uint64_t count, uint32_t slot,
                      uint64_t addr, uint64_t pages)
{
    volatile Region *r = snapctl_region(s);
    uint32_t status;
    uint64_t generation;

    write_snapshot(addr, pages);
    r->loads = 0;
    r->refused = 0;
    r->stop = 0;
    r->generation = snapctl_read(s, SNAPCTL_GENERATION, 8);

    status = snapctl_command(s, r, slot, SNAPCTL_COMMAND_SAVE);
    /* once with what the save has left, then with each load */
    generation = snapctl_read(s, SNAPCTL_GENERATION, 8);
    if (status == SNAPCTL_STATUS_LOADED) {
        if (generation <= r->generation) {
            put_char('!');
            answer("generation", generation);
            return;
        }
        r->generation = generation;
        r->loads++;
    } else if (status != SNAPCTL_STATUS_SAVED) {
        answer("error", status);
        return;
    }
    if (!snapshot_is_whole(addr, pages)) {
        return;
    }
    if (r->loads >= count || r->stop) {
        answer("ok", generation);
        return;
    }
    make_dirty(addr, pages, r->loads);
    status = snapctl_command(s, r, slot, SNAPCTL_COMMAND_LOAD);
    answer("error", status);
}

static void snap_repeat(const Snapctl *s, uint32_t slot, uint32_t command)
{
    volatile Region *r = snapctl_region(s);

    r->steps = 0;
    if (command == SNAPCTL_COMMAND_LOAD) {
        snapctl_command(s, r, slot, SNAPCTL_COMMAND_SAVE);
    }
    for (;;) {
        __atomic_add_fetch(&r->steps, 1, __ATOMIC_RELAXED);
        snapctl_command(s, r, slot, command);
    }
}

/*
 * A single instruction changes the state: a guest that is saved between two
 * would restore the generator with each load, and repeat itself for ever.
 */
uint64_t snapctl_draw(volatile Region *r)
{
    return mix(__atomic_fetch_add(&r->random, 0x9e3779b97f4a7c15,
                                  __ATOMIC_RELAXED));
}

bool snapctl_pair(volatile Region *r, uint64_t addr, uint64_t pages)
{
    uint64_t x = snapctl_draw(r);
    uint64_t offset = x % (pages / 2 * PAGE_SIZE / 8) * 8;
    uint64_t other = offset + pages / 2 * PAGE_SIZE;

    if (*at(addr + offset) != *at(addr + other)) {
        put_char('!');
        answer("corrupt", addr + offset);
        return false;
    }
    *at(addr + offset) = x;
    *at(addr + other) = x;
    return true;
}

bool serve_snapctl(const char *line, const uint64_t *n)
{
    Snapctl s;

    if (!snapctl_find(&s)) {
        return false;
    }
    if (take_word(&line, "snap-where")) {
        answer_ok(s.bar, BARS);
    } else if (take_word(&line, "snap-read")) {
        answer("ok", snapctl_read(&s, n[0], n[1]));
    } else if (take_word(&line, "snap-write")) {
        snapctl_write(&s, n[0], n[1], n[2]);
        answer_ok(NULL, 0);
    } else if (take_word(&line, "snap")) {
        answer_command(&s, n[0], n[1]);
    } else if (snapctl_region(&s) && take_word(&line, "snap-loop")) {
        snap_loop(&s, n[0], n[1], n[2], n[3]);
    } else if (take_word(&line, "snap-work")) {
        snap_work(n[0], n[1], n[2]);
    } else if (snapctl_region(&s) && take_word(&line, "snap-repeat")) {
        snap_repeat(&s, n[0], n[1]);
    } else if (snapctl_region(&s) && take_word(&line, "hammer")) {
        snapctl_hammer(&s, n[0], n[1], n[2], n[3]);
    } else {
        return false;
    }
    return true;
}
