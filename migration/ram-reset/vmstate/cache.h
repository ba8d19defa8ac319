/*
 * A cache of the VM state of a snapshot, without RAM
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef MIGRATION_RAM_RESET_VMSTATE_CACHE_H
#define MIGRATION_RAM_RESET_VMSTATE_CACHE_H

#include "block/block.h"
#include "migration/qemu-file-types.h"

/*
 * A load that skips RAM reads little of the VM state, but each read wakes up a
 * thread of the disk and waits for it.  The first load that skips RAM fills the
 * cache, and later loads read from it.  All functions need the BQL.
 */

/* A cached part of the VM state; @start is its position there, in bytes */
typedef struct VMStatePart {
    uint64_t start;
    GBytes *bytes;
} VMStatePart;

/**
 * VMStateCache: starts as zeroed memory
 *
 * @parts: the beginning of the VM state, and all behind RAM; both or none are
 *     cached
 * @skips: ranges of the second part that readers skip; NULL if the cache is
 *     empty
 */
typedef struct VMStateCache {
    VMStatePart parts[2];
    GArray *skips;
} VMStateCache;

/**
 * vmstate_cache_open: open a VM state for reading, through the cache
 *
 * @c: filled first if it is empty
 * @memory: the VM state, if no image has it; else NULL
 * @bs: the image with the VM state; not used if it is in @memory
 * @ram_end: the position in it of the footer of the last RAM section, in bytes
 * @size: the size of the VM state, in bytes
 *
 * Positions in the file are positions in the VM state.  The file reads uncached
 * parts from @bs.  @c may be dropped while the file is open.
 *
 * Returns: a file, to be closed by the caller
 */
QEMUFile *vmstate_cache_open(VMStateCache *c, GBytes *memory,
                             BlockDriverState *bs, uint64_t ram_end,
                             uint64_t size);

/**
 * vmstate_cache_devices: the part behind RAM, and its @size in bytes
 *
 * Returns: the bytes from the footer of the last RAM section on, valid until
 *     the cache is dropped; NULL if the cache is empty
 */
const uint8_t *vmstate_cache_devices(const VMStateCache *c, size_t *size);

/**
 * vmstate_cache_skip: let readers skip [@start, @end)
 *
 * Both are positions in the part behind RAM, in bytes.  The last byte of the
 * part must not be skipped.
 */
void vmstate_cache_skip(VMStateCache *c, uint64_t start, uint64_t end);

/**
 * vmstate_cache_clear_skips: let readers, also of open files, skip nothing
 */
void vmstate_cache_clear_skips(VMStateCache *c);

/**
 * vmstate_cache_drop: make the cache empty
 */
void vmstate_cache_drop(VMStateCache *c);

#endif
