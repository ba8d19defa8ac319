/*
 * RAM reset: whether the next rewind uses the dirty log or compares all of RAM
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include <math.h>
#include "system/ram-reset/measure/guest.h"
#include "system/ram-reset/rewind/choice.h"
#include "system/ram-reset/rewind/policy.h"
#include "system/ram-reset/rewind/restore.h"
#include "system/ram-reset/trace.h"

/* Approximate time of a first write to a page under TCG */
#define TCG_FAULT_NS        300
/* Comparing does not pay for fewer faults, whatever a fault costs */
#define MANY_FAULTS         500
/* Approximate time to compare a page, before it has been measured */
#define COMPARE_NS          300

/* Protected by the BQL */
static struct {
    double fault_ns;            /* cost of tracking a page for the guest */
    double comparing;           /* time of the last comparison, in ns, or 0 */
    RewindChoice choice;
} choice;

bool choice_compares(void)
{
    return choice.choice.compare;
}

void choice_reset(void)
{
    choice.choice = (RewindChoice) { 0 };
}

/* The time of the last comparison; before the first one, an estimate */
static double expected_comparing(const RamResetBlockList *list)
{
    unsigned threads;
    uint64_t pages;

    if (choice.comparing) {
        return choice.comparing;
    }
    pages = restore_count_present(list, &threads);
    return (double)pages * COMPARE_NS / threads;
}

/* Measured when it matters: measuring takes longer than a load of few pages */
static double faults_ns(uint64_t pages)
{
    if (!choice.fault_ns && pages < MANY_FAULTS) {
        return 0;
    }
    if (!choice.fault_ns) {
        choice.fault_ns = measure_write_fault() ?: TCG_FAULT_NS;
    }
    return pages * choice.fault_ns;
}

void choice_note(const RamResetBlockList *list, uint64_t faults, int64_t ns)
{
    double fault_time = faults_ns(faults);
    bool compared = choice_compares();

    if (compared) {
        choice.comparing = ns;
    }
    rewind_choose(&choice.choice, fault_time,
                  compared || rewind_choice_open(fault_time)
                  ? expected_comparing(list) : INFINITY);
    trace_ram_reset_rewind(fault_time, choice.comparing, choice_compares());
}
