/*
 * Measuring: the costs of making memory zero on this host
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef RAM_RESET_MEASURE_MEMORY_H
#define RAM_RESET_MEASURE_MEMORY_H

#include "system/ram-reset/measure/costs.h"

/**
 * measure_memory: measure the costs of memory of @kind, without a guest's costs
 *
 * This takes some milliseconds, in this thread, on a few MiB of scratch memory
 * that is mapped like guest RAM.  Costs for hugetlbfs are derived from those of
 * private memory.
 *
 * @costs: filled in, except for guest_fault and guest_map, which do not change
 *
 * Returns: false if the kernel refuses to handle such memory, or if all memory
 *     is locked; some members may have been set then
 */
bool measure_memory(CostsKind kind, MemoryCosts *costs);

#endif
