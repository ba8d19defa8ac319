/*
 * Measuring: what making memory zero costs on this host
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef RAM_RESET_MEASURE_MEMORY_H
#define RAM_RESET_MEASURE_MEMORY_H

#include "system/ram-reset/measure/costs.h"

/**
 * measure_memory: find out what memory of @kind costs, but for what a guest
 * pays
 *
 * That takes some milliseconds, in this thread, on a few MiB of scratch memory
 * which is mapped as QEMU maps guest RAM.  Costs for hugetlbfs follow from
 * those of private memory.
 *
 * @costs: filled in, but for guest_fault and guest_map, which stay as they are
 *
 * Returns: false if the kernel refuses to handle such memory, or if all memory
 *     is locked; some members may have been set then
 */
bool measure_memory(CostsKind kind, MemoryCosts *costs);

#endif
