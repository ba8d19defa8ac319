/*
 * The memory of snapshots that are in memory only
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef MIGRATION_RAM_RESET_MEMORY_SIZE_H
#define MIGRATION_RAM_RESET_MEMORY_SIZE_H

/**
 * ram_reset_memory_fits: whether ram_reset_memory_size() of @tags will be at most
 * @limit bytes when a save has ended
 *
 * @except: a name that does not count, of the snapshots that the save
 *     overwrites; may be NULL
 * @point: the point of the save
 * @vmstate: bytes of its VM state
 *
 * Returns: false with @errp set if not
 */
bool ram_reset_memory_fits(const char *const *tags, uint64_t limit,
                           const char *except, uint64_t point, uint64_t vmstate,
                           Error **errp);

#endif
