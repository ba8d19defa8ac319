/*
 * vCPUs side by side
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef MIGRATION_RAM_RESET_VCPUS_HELPER_H
#define MIGRATION_RAM_RESET_VCPUS_HELPER_H

#include "hw/core/cpu.h"

/**
 * ram_reset_vcpus_side_by_side: call @function for each of @cpus
 *
 * In any order, in this and in other threads, which take themselves for that of
 * the vCPU and do not have the BQL.  Returns when all are done.  The vCPUs must
 * have been borrowed.
 */
void ram_reset_vcpus_side_by_side(GPtrArray *cpus,
                                  void (*function)(CPUState *cpu));

#endif
