/*
 * The memory of snapshots that are in memory only
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef MIGRATION_RAM_RESET_MEMORY_SIZE_H
#define MIGRATION_RAM_RESET_MEMORY_SIZE_H

/**
 * ram_reset_memory_size_with: as ram_reset_memory_size(), in the course of a
 * save
 *
 * @except: a name that does not count, of the snapshots that the save
 *     overwrites; may be NULL
 * @point: the point of the save, which counts; 0 if there is none
 */
uint64_t ram_reset_memory_size_with(const char *const *tags, const char *except,
                                    uint64_t point);

#endif
