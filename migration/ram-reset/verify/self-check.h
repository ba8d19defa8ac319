/*
 * Whether a device that a load leaves alone is what the snapshot has
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef MIGRATION_RAM_RESET_VERIFY_SELF_CHECK_H
#define MIGRATION_RAM_RESET_VERIFY_SELF_CHECK_H

#include "system/ram-reset-compat.h"

/*
 * The BQL is held, the VM stopped, and I/O drained.
 */

/**
 * ram_reset_self_check_begin: devices are to be compared with a snapshot
 *
 * @data: what its VM state has behind RAM, @size bytes; it has to stay there
 *     until ram_reset_self_check_end()
 */
void ram_reset_self_check_begin(const uint8_t *data, size_t size);

/**
 * ram_reset_self_check: save @dev to memory, and compare it with its section
 *
 * @start: where the section begins in @data
 *
 * verify/exceptions.c lists what may differ.  If something else does, the
 * class of @dev is loaded with each load from now on.
 *
 * Returns: whether @dev is what the section has
 */
bool ram_reset_self_check(DeviceState *dev, uint64_t start);

void ram_reset_self_check_end(void);

/**
 * ram_reset_self_check_failures: how many devices were not
 */
uint64_t ram_reset_self_check_failures(void);

#endif
