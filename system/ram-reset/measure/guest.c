/*
 * Measuring: the additional costs for a guest
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

/* Pages in each of three parts of the memory */
#define GUEST_PAGES 128

/*
 * Roughly the published values for faults and lost mappings on hosts with EPT;
 * not measured here.
 */
static const GuestCosts assumed = { .fault = 1500, .map = 1500, .unmap = 200 };
#define ASSUMED_WRITE_FAULT 1500

/* @map is empty at first. A third of it stays so, QEMU populates the rest. */
static bool measure_once(const PrimMap *map, PrimGuest *guest,
                         GuestCosts *costs)
{
    uint64_t third = map->len / 3;
    unsigned count = third / PAGE_SIZE;
    int64_t at[5], with, without;

    /* Touch once first, so that the start of the guest is not measured */
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

/* Measure twice, and take the smaller value of each */
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

/* NULL on failure; call scratch_guest_free() even then */
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

/* Negative on failure */
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
