/*
 * RAM reset: make RAM zero when a snapshot is loaded
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef SYSTEM_RAM_RESET_LOAD_H
#define SYSTEM_RAM_RESET_LOAD_H

#include "exec/cpu-common.h"
#include "qapi/qapi-types-ram-reset.h"
#include "system/ram-reset.h"

/*
 * This layer knows RAM blocks and strategies.  It does not know snapshots: its
 * caller, migration/ram-reset/load.c, requests that RAM becomes zero, and asks
 * afterwards which pages still are.
 *
 * All functions are called with the BQL held, and between ram_reset_begin() and
 * ram_reset_finish() from one thread only.  A reset has these steps:
 *
 *     ram_reset_begin()               vCPUs stopped, I/O drained
 *     ram_reset_known_zero(), ram_reset_page_loaded(), ... in any order
 *     ram_reset_complete_zeroing()    all of RAM has been loaded
 *     ram_reset_finish()              also when the load has failed
 */

/**
 * ram_reset_enabled: whether any ram-reset object exists
 */
bool ram_reset_enabled(void);

/**
 * ram_reset_verify_wanted: whether any ram-reset object has verify=on
 */
bool ram_reset_verify_wanted(void);

/**
 * ram_reset_new_vmgenid_wanted: whether any ram-reset object has new-vmgenid=on
 */
bool ram_reset_new_vmgenid_wanted(void);

/**
 * ram_reset_load_refusal: the reason why a load must not begin now, since a
 * device outside of QEMU would write to the loaded memory
 *
 * The guest is stopped, and a ram-reset object exists.
 *
 * Returns: NULL if it may begin, otherwise a sentence with the remedy
 */
const char *ram_reset_load_refusal(void);

/**
 * ram_reset_covers: whether a reset would make @rb zero
 *
 * False for blocks that no object covers, and for blocks that must not be
 * touched.  Changes nothing.
 */
bool ram_reset_covers(RAMBlock *rb);

/**
 * ram_reset_begin: make all RAM blocks zero that an object covers, or note that
 * they must become zero
 *
 * @all_notified: the caller will call ram_reset_page_loaded() for every page
 *     that it writes to, so that clearing can wait
 * @expected: bytes that the caller will write to all blocks, at most; 0 if
 *     unknown
 *
 * vCPUs must be stopped until ram_reset_finish().  I/O must be drained until
 * ram_reset_complete_zeroing(), or until ram_reset_finish() if that is not
 * called.  This cannot fail: if a strategy fails, its block is cleared in
 * place, which is counted and warned of once for each object.  Other users of
 * the dirty log see all of these blocks as dirty.
 *
 * Without a ram-reset object this does nothing.  Otherwise it allocates a bit
 * per target page, until ram_reset_finish().
 */
void ram_reset_begin(bool all_notified, uint64_t expected);

/* The operation that the caller is about to do with a page */
typedef enum RamResetPage {
    RAM_RESET_PAGE_ZERO,        /* make it zero */
    RAM_RESET_PAGE_WRITE,       /* write all of it */
    RAM_RESET_PAGE_CHANGE,      /* write part of it, or bytes derived from it */
} RamResetPage;

/**
 * ram_reset_page_loaded: the caller is going to load a target page
 *
 * @rb: the block
 * @offset: of the page in it, target page aligned and inside used_length
 * @what: zero pages are counted; others are not known zero any more.  A page
 *     whose old content matters is made zero now, if that has been postponed.
 *
 * Only between begin and finish.
 */
void ram_reset_page_loaded(RAMBlock *rb, ram_addr_t offset, RamResetPage what);

/**
 * ram_reset_known_run: the number of bytes of @rb from @offset on that are
 * known to be zero
 *
 * Returns: at most @max.  Both must be target page aligned.
 */
uint64_t ram_reset_known_run(RAMBlock *rb, ram_addr_t offset, uint64_t max);

/**
 * ram_reset_pages_skipped: count pages that should be zero and are known to be
 * zero
 *
 * For pages without a call of ram_reset_page_loaded().
 */
void ram_reset_pages_skipped(RAMBlock *rb, uint64_t pages);

/**
 * ram_reset_complete_zeroing: make all pages zero that are known zero but are
 * not zero yet
 *
 * Call this when RAM has been loaded, before anybody reads it.
 */
void ram_reset_complete_zeroing(void);

/**
 * ram_reset_finish: end the reset; nothing is known zero from now on
 *
 * This calls ram_reset_complete_zeroing(), if the caller has not.
 *
 * @loaded: the snapshot has been loaded, nothing has failed
 *
 * Returns: a description of the reset, block by block, owned by the caller.
 * Empty if there was no ram-reset object, or no reset.
 */
RamResetBlockInfoList *ram_reset_finish(bool loaded);

/**
 * ram_reset_foreach_content: show all of a block's bytes
 *
 * @rb: the block.  Reading it populates neither files nor hugepages: shared
 *     memory is read through its file, if it is a regular one, and absent
 *     private hugepages are skipped.
 * @func: called with pieces of @rb in rising order, @start and @len in
 *     bytes and multiples of the target page size, until it returns false
 *
 * Works at any time.
 */
void ram_reset_foreach_content(RAMBlock *rb,
                               bool (*func)(RAMBlock *rb, uint64_t start,
                                            const uint8_t *data, uint64_t len,
                                            void *opaque),
                               void *opaque);

/**
 * ram_reset_unpopulated_begin: find the pages without memory in the host
 *
 * Nobody may write to guest RAM while the result is used.  Without a ram-reset
 * object nothing is found.
 */
void ram_reset_unpopulated_begin(void);
void ram_reset_unpopulated_end(void);

/**
 * ram_reset_is_unpopulated: whether the target page at @page reads as zero
 * because the host has no memory for it
 *
 * False unless that is certain; always false outside of begin and end.
 */
bool ram_reset_is_unpopulated(const void *page);

/**
 * ram_reset_query_objects: the ram-reset objects, owned by the caller
 */
RamResetObjectInfoList *ram_reset_query_objects(void);

/**
 * ram_reset_fallbacks: the number of failures of strategies at run time so far
 */
uint64_t ram_reset_fallbacks(void);

#endif
