/*
 * Measuring: what a guest pays for what is done to its memory
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include <math.h>
#include "qemu/madvise.h"
#include "system/kvm.h"
#include "system/ram-reset/measure/guest.h"
#include "system/ram-reset/measure/scratch.h"
#include "system/ram-reset/prim/kvm-guest.h"

#define PAGE_SIZE   4096

/* Three parts of the memory have so many pages each */
#define GUEST_PAGES 128

/*
 * About what is published for faults and lost mappings on hosts with EPT; none
 * of it has been measured here.
 */
static const GuestCosts assumed = { .fault = 1500, .map = 1500, .unmap = 200 };
#define ASSUMED_WRITE_FAULT 1500

/* Finds @map empty: of its thirds one stays so, and two only QEMU has */
static bool measure_once(const PrimMap *map, PrimGuest *guest,
                         GuestCosts *costs)
{
    uint64_t third = map->len / 3;
    unsigned count = third / PAGE_SIZE;
    int64_t at[5], with, without;

    /* Once, for what it takes to run at all */
    scratch_touch(map->host, PAGE_SIZE, PAGE_SIZE);
    if (prim_guest_touch(guest, 0, PAGE_SIZE, 1) < 0) {
        return false;
    }
    madvise(map->host, PAGE_SIZE, MADV_DONTNEED);
    at[0] = measure_clock();
    scratch_touch(map->host + third, 2 * third, PAGE_SIZE);
    at[1] = measure_clock();
    if (prim_guest_touch(guest, third, PAGE_SIZE, count) < 0) {
        return false;
    }
    at[2] = measure_clock();
    if (prim_guest_touch(guest, 0, PAGE_SIZE, count) < 0) {
        return false;
    }
    at[3] = measure_clock();
    madvise(map->host + third, third, MADV_DONTNEED);
    at[4] = measure_clock();
    with = at[4] - at[3];
    madvise(map->host + 2 * third, third, MADV_DONTNEED);
    without = measure_clock() - at[4];
    madvise(map->host, third, MADV_DONTNEED);

    costs->map = (double)(at[2] - at[1]) / count;
    costs->fault = measure_beyond((double)(at[3] - at[2]) / count,
                                  (double)(at[1] - at[0]) / (2 * count));
    costs->unmap = measure_beyond(with, without) / count;
    return true;
}

/* The faster of both, each */
static bool measure_twice(const PrimMap *map, PrimGuest *guest,
                          GuestCosts *costs)
{
    GuestCosts again;

    if (!measure_once(map, guest, costs) ||
        !measure_once(map, guest, &again)) {
        return false;
    }
    costs->fault = MIN(costs->fault, again.fault);
    costs->map = MIN(costs->map, again.map);
    costs->unmap = MIN(costs->unmap, again.unmap);
    return true;
}

/* NULL if that cannot be had; scratch_guest_free() also then */
static PrimGuest *scratch_guest_new(PrimMap *map)
{
    if (!scratch_map(map, 3 * GUEST_PAGES * PAGE_SIZE, false)) {
        return NULL;
    }
    qemu_madvise(map->host, map->len, QEMU_MADV_NOHUGEPAGE);
    return prim_guest_new(map->host, map->len);
}

static void scratch_guest_free(PrimMap *map, PrimGuest *guest)
{
    if (guest) {
        prim_guest_free(guest);
    }
    scratch_unmap(map);
}

GuestCosts measure_guest(void)
{
    GuestCosts costs = { 0 };
    PrimGuest *guest;
    PrimMap map;
    bool ok;

    if (!kvm_enabled()) {
        return costs;
    }
    guest = scratch_guest_new(&map);
    ok = guest && measure_twice(&map, guest, &costs);
    scratch_guest_free(&map, guest);
    return ok ? costs : assumed;
}

/* Negative if that fails */
static double write_fault(const PrimMap *map, PrimGuest *guest)
{
    unsigned count = map->len / PAGE_SIZE;
    double best = INFINITY;

    for (unsigned i = 0; i < MEASURE_TRIES; i++) {
        int64_t before;

        if (prim_guest_touch(guest, 0, PAGE_SIZE, count) < 0 ||
            prim_guest_protect(guest) < 0) {
            return -1;
        }
        before = measure_clock();
        if (prim_guest_touch(guest, 0, PAGE_SIZE, count) < 0) {
            return -1;
        }
        best = MIN(best, (double)(measure_clock() - before) / count);
    }
    return best;
}

double measure_write_fault(void)
{
    PrimGuest *guest;
    PrimMap map;
    double ns;

    if (!kvm_enabled()) {
        return 0;
    }
    guest = scratch_guest_new(&map);
    ns = guest ? write_fault(&map, guest) : -1;
    scratch_guest_free(&map, guest);
    return ns < 0 ? ASSUMED_WRITE_FAULT : ns;
}
