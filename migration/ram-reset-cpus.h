/*
 * Which CPUs a snapshot has
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef MIGRATION_RAM_RESET_CPUS_H
#define MIGRATION_RAM_RESET_CPUS_H

/**
 * ram_reset_cpus_read: by the description that a VM state ends with
 *
 * @image: shows the VM state
 * @size: of the VM state, in bytes
 *
 * Returns: an array of unsigned, the cpu_index of each; empty if the VM state
 *     does not say
 */
GArray *ram_reset_cpus_read(BlockDriverState *image, uint64_t size);

/**
 * ram_reset_cpus_are_here: whether this machine has all of @cpus
 *
 * It may have more.  A load leaves those as a reset does, waiting to be started
 * by a guest that does not know of them.
 */
bool ram_reset_cpus_are_here(const GArray *cpus, Error **errp);

#endif
