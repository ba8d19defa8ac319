/*
 * The results of loads, for query-ram-reset
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef MIGRATION_RAM_RESET_QUERY_H
#define MIGRATION_RAM_RESET_QUERY_H

#include "qapi/qapi-types-ram-reset.h"

/**
 * RamResetTimes: the end of each phase of a load, in ns of QEMU_CLOCK_REALTIME;
 * 0 if the load has not come so far
 *
 * @start: the begin of the load
 * @ram_verified: the end of the check of RAM, or of its load without verify=on
 * @verified: the end of the check of devices; 0 without verify=on
 * @completing: the duration of pending zeroing after RAM was loaded, in ns;
 *     counts as RAM reset
 */
typedef struct RamResetTimes {
    int64_t start, checked, reverted, was_reset, zeroed, ram_loaded, end;
    int64_t ram_verified, verified, completing;
} RamResetTimes;

/**
 * ram_reset_query_phases: the duration of each phase, in ns
 *
 * Returns: to be freed by the caller
 */
RamResetPhases *ram_reset_query_phases(const RamResetTimes *times);

/**
 * ram_reset_count_load: count a load that has ended, as the last load
 *
 * @info: its results; the function takes ownership
 *
 * With the BQL held.
 */
void ram_reset_count_load(RamResetLoadInfo *info);

#endif
