/*
 * Work on several vCPUs in parallel
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef RAM_RESET_MACHINE_VCPUS_HELPER_H
#define RAM_RESET_MACHINE_VCPUS_HELPER_H

#include "hw/core/cpu.h"

/**
 * ram_reset_vcpus_side_by_side: call @function for each of @cpus
 *
 * In any order, in this thread and in others.  For @function, the thread is
 * that of the vCPU; it does not hold the BQL.  Returns when all calls have
 * returned.  The vCPUs must have been borrowed.
 */
void ram_reset_vcpus_side_by_side(GPtrArray *cpus,
                                  void (*function)(CPUState *cpu));

#endif
