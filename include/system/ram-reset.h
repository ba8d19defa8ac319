/*
 * Pluggable RAM reset: functions called by QEMU's own files
 *
 * Other headers: ram-reset-load.h makes RAM zero when a snapshot is loaded,
 * ram-reset-rewind.h undoes changes of RAM, ram-reset-template.h is for files
 * with RAM, ram-reset-object.h has the contract of a strategy.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef SYSTEM_RAM_RESET_H
#define SYSTEM_RAM_RESET_H

#include "system/hostmem.h"
#include "system/ram-reset-flags.h"

/* Called by vl.c and hostmem.c, with the BQL held */

/**
 * ram_reset_expect_load: a snapshot will be loaded as soon as the machine is
 * made (-loadvm), so that RAM need not be cleared before.  Called before the
 * machine is made.
 */
void ram_reset_expect_load(void);

/**
 * ram_reset_backend_alloc: map @backend's memory by @alloc
 *
 * If a ram-reset-hugefile object names @backend, its file is claimed first: it
 * is locked, and removed, made or reused as the object's unlink= says.  After
 * it has been mapped, bytes of an earlier run are cleared, unless a load is
 * expected.
 *
 * Returns: false with @errp set if @alloc has failed, or if the file cannot
 *     be used in that way; the file has been released then
 */
bool ram_reset_backend_alloc(HostMemoryBackend *backend,
                             bool (*alloc)(HostMemoryBackend *backend,
                                           Error **errp),
                             Error **errp);

/* reset.c, with the BQL held */

/**
 * ram_reset_is_unchanged: whether @opaque points into a device that the system
 * reset of a load leaves alone
 */
bool ram_reset_is_unchanged(const void *opaque);

/* vhost.c, with the BQL held */

struct vhost_dev;

/**
 * ram_reset_vhost_starts: the back end of @dev is given a queue to work on
 */
void ram_reset_vhost_starts(const struct vhost_dev *dev);

/* memory.c, with the BQL held */

/* A user of the global dirty log, as GLOBAL_DIRTY_MIGRATION is */
#define GLOBAL_DIRTY_RAM_RESET (1U << 31)

/* The listeners of all address spaces */
extern QTAILQ_HEAD(MemoryListeners, MemoryListener) memory_listeners;

/* Called by ram.c when a snapshot is loaded, with the BQL held */

bool ram_reset_do_known_zero(const void *host, size_t size);

/**
 * ram_reset_known_zero: whether [@host, @host + @size) is zero, or will be zero
 * after ram_reset_complete_zeroing() if the caller does not write there
 *
 * False unless it is certain; always false outside begin and finish.  If true,
 * the memory was not touched to find out.
 */
static inline bool ram_reset_known_zero(const void *host, size_t size)
{
    return unlikely(ram_reset_flags.running) &&
           ram_reset_do_known_zero(host, size);
}

/*
 * Called by physmem.c at any time, in any thread; @start and @len are bytes of
 * a block
 */

void ram_reset_do_dma_map(RAMBlock *rb, uint64_t start, uint64_t len);
uint64_t ram_reset_do_dma_unmap(RAMBlock *rb, uint64_t start, uint64_t len,
                                uint64_t access_len);
void ram_reset_do_will_change(RAMBlock *rb, uint64_t start, uint64_t len);
bool ram_reset_do_discard(RAMBlock *rb, uint64_t start, uint64_t len);

/**
 * ram_reset_dma_map: a range of @rb is mapped, to be accessed through a pointer
 *
 * If @is_write, ram_reset_dma_unmap() follows with the same @start.
 */
static inline void ram_reset_dma_map(RAMBlock *rb, uint64_t start,
                                     uint64_t len, bool is_write)
{
    if (is_write && unlikely(qatomic_read(&ram_reset_flags.noting))) {
        ram_reset_do_dma_map(rb, start, len);
    }
}

/**
 * ram_reset_dma_unmap: a range that was mapped for writing is unmapped
 *
 * @len: of the mapping
 * @access_len: the length that the user reports as written; set to the length
 *     that counts as written to
 */
static inline void ram_reset_dma_unmap(RAMBlock *rb, uint64_t start,
                                       uint64_t len, uint64_t *access_len)
{
    if (unlikely(qatomic_read(&ram_reset_flags.noting))) {
        *access_len = ram_reset_do_dma_unmap(rb, start, len, *access_len);
    }
}

/**
 * ram_reset_discard: a range of @rb, page aligned, is going to be discarded,
 * but not by a reset
 *
 * Returns: true if this function has discarded it, since discarding memory that
 *     is mapped from a template would not make it zero
 */
static inline bool ram_reset_discard(RAMBlock *rb, uint64_t start,
                                     uint64_t len)
{
    if (unlikely(qatomic_read(&ram_reset_flags.tracking))) {
        ram_reset_do_will_change(rb, start, len);
    }
    return unlikely(qatomic_read(&ram_reset_flags.any_mapped)) &&
           ram_reset_do_discard(rb, start, len);
}

#endif
