/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The snapctl device, for the parts of the ring-3 test guest. */

#ifndef RING3_SNAPCTL_H
#define RING3_SNAPCTL_H

#include "ring3-pci.h"
#include "../../../include/hw/misc/snapctl-regs.h"

#define BARS            3

typedef struct Snapctl {
    uint32_t devfn;
    uint64_t bar[BARS];
} Snapctl;

/* At the beginning of the persistent region; the host knows it as well */
typedef struct Region {
    uint64_t loads;         /* that snap-loop has seen */
    uint64_t generation;    /* the last one that it has seen */
    uint64_t refused;       /* how often it was told to wait */
    uint64_t random;        /* state of the hammer's generator */
    uint64_t steps;         /* that the hammer, or snap-repeat, has begun */
    uint64_t stop;          /* the host wants snap-loop or the hammer to end */
} Region;

/* False if it is not there; the region may be missing */
bool snapctl_find(Snapctl *s);
volatile Region *snapctl_region(const Snapctl *s);

/* A register, by an access of 1, 2, 4 or 8 bytes */
uint64_t snapctl_read(const Snapctl *s, uint64_t offset, unsigned size);
void snapctl_write(const Snapctl *s, uint64_t offset, uint64_t value,
                   unsigned size);

/* The same at any address */
void write_sized(uint64_t addr, uint64_t value, unsigned size);

/* Writes the BARs; decoding is off meanwhile, so no other place is ever seen */
void snapctl_map(const Snapctl *s);

/* Waits for the end of a command; its status */
uint32_t snapctl_wait(const Snapctl *s);

/* The status; asks again for as long as the device says "wait" */
uint32_t snapctl_command(const Snapctl *s, volatile Region *r, uint32_t slot,
                         uint32_t command);

/* A random number, of a generator that loads do not take back */
uint64_t snapctl_draw(volatile Region *r);

/*
 * Write to two places in @pages pages from @addr on, which are zero at first;
 * the guest says '!' if another two are not equal
 */
bool snapctl_pair(volatile Region *r, uint64_t addr, uint64_t pages);

/* Answers the command "hammer" */
void snapctl_hammer(const Snapctl *s, uint64_t steps, uint64_t seed,
                    uint64_t addr, uint64_t pages);

#endif
