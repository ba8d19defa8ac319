/*
 * Whether the VM is whole, or has a part of a snapshot
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef MIGRATION_RAM_RESET_PARTIAL_LOAD_H
#define MIGRATION_RAM_RESET_PARTIAL_LOAD_H

/*
 * See ram_reset_vm_is_whole() for what follows from it.  BQL held.
 */

/**
 * ram_reset_set_part: a load of snapshot @tag has failed, and had begun
 *
 * The VM is whole again after ram_reset_set_whole(), or a system reset other
 * than a load's own.
 */
void ram_reset_set_part(const char *tag);

/**
 * ram_reset_set_whole: a load has succeeded
 */
void ram_reset_set_whole(void);

#endif
