/*
 * RAM reset: the dirty log of TCG while the guest is migrated
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef SYSTEM_RAM_RESET_DIRTY_TCG_H
#define SYSTEM_RAM_RESET_DIRTY_TCG_H

/**
 * ram_reset_watch_dirty_tcg: see to it that a migration misses no write of TCG
 *
 * A vCPU of TCG writes without a note in the dirty log to a page that has its
 * bit.  When a migration has fetched the bits, it tells vCPUs so by offsets in
 * a RAM block, where addresses of all RAM are due.  So only the first block
 * is told, and later writes to others are missed.
 *
 * @watch: from now on, tell vCPUs about all blocks; if false, no more
 *
 * Calls do not nest.  The BQL is held.
 */
void ram_reset_watch_dirty_tcg(bool watch);

#endif
