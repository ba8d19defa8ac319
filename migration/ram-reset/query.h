/*
 * What query-ram-reset says of loads
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef MIGRATION_RAM_RESET_QUERY_H
#define MIGRATION_RAM_RESET_QUERY_H

#include "qapi/qapi-types-ram-reset.h"

/**
 * RamResetTimes: when each phase of a load ended, in ns; 0 if it has not
 *
 * @start: the load began
 * @ram_verified: RAM was compared, or need not be
 * @verified: devices were compared; 0 if they need not be
 * @completing: not when, but how long it took to complete pending zeroing
 *     after RAM was loaded; counts as a part of making RAM zero
 */
typedef struct RamResetTimes {
    int64_t start, checked, reverted, was_reset, zeroed, ram_loaded, end;
    int64_t ram_verified, verified, completing;
} RamResetTimes;

/**
 * ram_reset_query_phases: the length of each phase, owned by the caller
 */
RamResetPhases *ram_reset_query_phases(const RamResetTimes *times);

/**
 * ram_reset_count_load: a load has ended, which is the last one from now on
 *
 * @info: what there is to say of it; ownership goes to the function
 */
void ram_reset_count_load(RamResetLoadInfo *info);

#endif
