/*
 * RAM reset: making RAM zero when a snapshot is loaded
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef SYSTEM_RAM_RESET_LOAD_H
#define SYSTEM_RAM_RESET_LOAD_H

#include "exec/cpu-common.h"
#include "qapi/qapi-types-ram-reset.h"
#include "system/ram-reset.h"

/*
 * This layer knows RAM blocks and strategies.  It does not know what a
 * snapshot is: its caller, migration/ram-reset.c, says when RAM has to
 * become zero and asks afterwards which pages still are.
 *
 * All functions are called with the BQL held, and between ram_reset_begin()
 * and ram_reset_finish() from one thread only.  A reset goes like this:
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
 * ram_reset_load_refusal: why a load must not begin now, as somebody outside of
 * QEMU would write to the memory that is loaded
 *
 * The guest is stopped, any ram-reset object exists.
 *
 * Returns: NULL if it may begin, otherwise a sentence with what to do
 */
const char *ram_reset_load_refusal(void);

/**
 * ram_reset_covers: whether a reset would make @rb zero
 *
 * False for blocks that no object serves and for those that must not be
 * touched.  Changes nothing.
 */
bool ram_reset_covers(RAMBlock *rb);

/**
 * ram_reset_begin: make all RAM blocks zero that an object covers, or note
 * that they are to be so
 *
 * @all_notified: the caller will call ram_reset_page_loaded() for every page
 *     that it writes to, so that clearing can wait
 * @expected: bytes that the caller will write to all blocks, at most; 0 if it
 *     does not know
 *
 * vCPUs must be stopped, and stay so until ram_reset_finish(), and I/O
 * drained, until ram_reset_complete_zeroing() if that is called.  Cannot fail:
 * where a strategy does, its block is cleared in place instead, which is
 * counted and warned of once an object.
 * Other users of the dirty log see all of these blocks as dirty.
 *
 * Without a ram-reset object this does nothing.  Otherwise it allocates a
 * bit per target page, until ram_reset_finish().
 */
void ram_reset_begin(bool all_notified, uint64_t expected);

/* What the caller is about to do with a page */
typedef enum RamResetPage {
    RAM_RESET_PAGE_ZERO,        /* make it zero */
    RAM_RESET_PAGE_WRITE,       /* write all of it */
    RAM_RESET_PAGE_CHANGE,      /* write some of it, or what depends on it */
} RamResetPage;

/**
 * ram_reset_page_loaded: the caller is going to load a target page
 *
 * @rb: the block
 * @offset: of the page in it, target page aligned and inside used_length
 * @what: zero pages are counted; others are known zero no longer.  A page
 *     whose old content matters is made zero now, if that has been put off.
 *
 * Only between begin and finish.
 */
void ram_reset_page_loaded(RAMBlock *rb, ram_addr_t offset, RamResetPage what);

/**
 * ram_reset_known_run: how much of @rb from @offset on is known to be zero
 *
 * Returns: bytes, at most @max.  Both must be target page aligned.
 */
uint64_t ram_reset_known_run(RAMBlock *rb, ram_addr_t offset, uint64_t max);

/**
 * ram_reset_pages_skipped: count pages that were to be zero and known to be
 *
 * For those that ram_reset_page_loaded() is not called for.
 */
void ram_reset_pages_skipped(RAMBlock *rb, uint64_t pages);

/**
 * ram_reset_complete_zeroing: make zero what is known to be so, and is not yet
 *
 * To be called when RAM has been loaded and before anybody looks at it.
 */
void ram_reset_complete_zeroing(void);

/**
 * ram_reset_finish: end the reset; nothing is known zero from now on
 *
 * Does what ram_reset_complete_zeroing() does, if that has not been called.
 *
 * @loaded: the snapshot has been loaded, nothing has failed
 *
 * Returns: what was done, block by block, owned by the caller.  Empty if
 * there was no ram-reset object, or nothing has begun.
 */
RamResetBlockInfoList *ram_reset_finish(bool loaded);

/**
 * ram_reset_foreach_content: show all of a block's bytes
 *
 * @rb: the block.  Its files and hugepages are not populated by being read:
 *     shared memory is read through its file, if it has a regular one, and of
 *     private hugepages those that are not there are passed over.
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
 * ram_reset_unpopulated_begin: find out which pages the host has no memory for
 *
 * Nobody may write to guest RAM while the answers are used.  Without a
 * ram-reset object nothing is found.
 */
void ram_reset_unpopulated_begin(void);
void ram_reset_unpopulated_end(void);

/**
 * ram_reset_is_unpopulated: whether the target page at @page reads zero
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
 * ram_reset_fallbacks: how often a strategy failed at run time so far
 */
uint64_t ram_reset_fallbacks(void);

#endif
