/*
 * Self-check: verify that an unchanged device has the state of the snapshot
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef MIGRATION_RAM_RESET_VERIFY_SELF_CHECK_H
#define MIGRATION_RAM_RESET_VERIFY_SELF_CHECK_H

#include "system/ram-reset-compat.h"

/*
 * All functions need the BQL, a stopped VM, and drained I/O.
 */

/**
 * ram_reset_self_check_begin: begin to check devices against a snapshot
 *
 * @data: the part of its VM state behind RAM, @size bytes; it must live until
 *     ram_reset_self_check_end()
 */
void ram_reset_self_check_begin(const uint8_t *data, size_t size);

/**
 * ram_reset_self_check: save @dev to memory, and compare it with its section
 *
 * @start: the position in @data where the section begins, in bytes
 *
 * If a field differs that verify/exceptions.c does not list, each load loads
 * the class of @dev from now on.
 *
 * Returns: false if @dev differs from the section
 */
bool ram_reset_self_check(DeviceState *dev, uint64_t start);

/**
 * ram_reset_self_check_end: the last device has been checked
 */
void ram_reset_self_check_end(void);

/**
 * ram_reset_self_check_failures: the number of failed checks so far
 */
uint64_t ram_reset_self_check_failures(void);

#endif
