/*
 * RAM of devices and backends that have been removed
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef MIGRATION_RAM_RESET_REMOVED_RAM_H
#define MIGRATION_RAM_RESET_REMOVED_RAM_H

/**
 * removed_ram_wait: wait until RAM blocks of removed objects have been freed
 *
 * The BQL must be held, the RAM list lock must not.  If there is such a block,
 * this releases the BQL meanwhile, for some tens of milliseconds.
 */
void removed_ram_wait(void);

#endif
