/*
 * Whether the VM is whole, or has a partial load
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef MIGRATION_RAM_RESET_PARTIAL_LOAD_H
#define MIGRATION_RAM_RESET_PARTIAL_LOAD_H

/*
 * ram_reset_vm_is_whole() has the consequences.  All functions need the BQL.
 */

/**
 * ram_reset_partial_load_set: a load of snapshot @tag has failed after it had
 * changed the VM
 *
 * The VM becomes whole by ram_reset_partial_load_clear(), or by a system reset
 * that is no part of a load.
 */
void ram_reset_partial_load_set(const char *tag);

/**
 * ram_reset_partial_load_clear: a load has succeeded, so the VM is whole
 */
void ram_reset_partial_load_clear(void);

#endif
