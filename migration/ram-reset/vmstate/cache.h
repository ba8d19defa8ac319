/*
 * The VM state of a snapshot without RAM, in memory
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef MIGRATION_RAM_RESET_VMSTATE_CACHE_H
#define MIGRATION_RAM_RESET_VMSTATE_CACHE_H

#include "block/block.h"
#include "migration/qemu-file-types.h"

/*
 * A load that skips RAM reads little of the VM state, but each read of a disk
 * costs the wake-up of a thread and its answer.  The first load that skips RAM
 * fills the cache; the next ones read from it.  All functions are called with
 * the BQL held.
 */

/* A part of the VM state: @start is its position there, in bytes */
typedef struct VMStatePart {
    uint64_t start;
    GBytes *bytes;
} VMStatePart;

/**
 * VMStateCache: starts as zeroed memory
 *
 * @parts: the beginning, and all behind RAM; both are there, or none
 * @skips: ranges of the second part that readers skip
 */
typedef struct VMStateCache {
    VMStatePart parts[2];
    GArray *skips;
} VMStateCache;

/**
 * vmstate_cache_open: read a VM state, from memory where @c has it
 *
 * @c: filled first if it is empty
 * @bs: where the VM state is
 * @ram_end: the position in it of the footer of RAM's last section
 * @size: of the VM state, in bytes
 *
 * Positions in the file are those in the VM state.  The file reads from @bs
 * what @c does not have.  @c may be dropped while the file is open.
 *
 * Returns: a file, to be closed by the caller
 */
QEMUFile *vmstate_cache_open(VMStateCache *c, BlockDriverState *bs,
                             uint64_t ram_end, uint64_t size);

/**
 * vmstate_cache_devices: the part behind RAM
 *
 * Returns: a borrowed reference, from the footer of RAM's last section on; NULL
 *     if the cache is empty
 */
const uint8_t *vmstate_cache_devices(const VMStateCache *c, size_t *size);

/**
 * vmstate_cache_skip: until vmstate_cache_skip_nothing(), a file that comes to
 * @start goes on at @end
 *
 * Both are positions in the part behind RAM.  The end of the part must not be
 * skipped.
 */
void vmstate_cache_skip(VMStateCache *c, uint64_t start, uint64_t end);
void vmstate_cache_skip_nothing(VMStateCache *c);

/**
 * vmstate_cache_drop: the cache becomes empty
 */
void vmstate_cache_drop(VMStateCache *c);

#endif
