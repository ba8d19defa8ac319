/*
 * Stored pages of a RAM block, each with a count of its references
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef RAM_RESET_BLOCK_PAGE_POOL_H
#define RAM_RESET_BLOCK_PAGE_POOL_H

/*
 * The content of one page.  PAGE_AS_BASE and PAGE_ZERO need no memory.
 * PAGE_NO_MEMORY is an error that functions return.  All other values are
 * stored pages of one pool, and mean nothing in another.  Equal values are
 * equal contents; two stored pages of equal content have different values.
 */
typedef uint32_t PageRef;

/* The page is as in the base copy */
#define PAGE_AS_BASE 0u
/* The page is zero */
#define PAGE_ZERO 1u
#define PAGE_NO_MEMORY UINT32_MAX

static inline bool page_ref_stored(PageRef ref)
{
    return ref > PAGE_ZERO && ref != PAGE_NO_MEMORY;
}

/*
 * Pages of one size, in private memory that core dumps and forked processes do
 * not have.  Each stored page has a count of references, and ends with the last
 * one.  The pool must outlive the trees that use it, see page-tree.h.
 *
 * Threads: any number of them may read one pool and its trees at once.  A
 * change needs exclusion, in QEMU the BQL: no other thread may read or change
 * the pool or any of its trees meanwhile.  Functions with a const pool or tree
 * read; all others change.
 */
typedef struct PagePool PagePool;

/*
 * @page_size: bytes, a power of two.  The caller owns the pool.  Never NULL.
 */
PagePool *page_pool_new(size_t page_size);

/* Asserts that no page and no tree is left; NULL is fine */
void page_pool_free(PagePool *pool);

/*
 * Store a copy of @page, page_size bytes at any address, in a page of its own.
 * The caller owns one reference.  PAGE_NO_MEMORY if there is no memory, or if
 * the pool has no number left for another page; the pool is as before then.
 */
PageRef page_pool_put(PagePool *pool, const uint8_t *page);

/*
 * Get memory in advance: one more step, of up to 2 MiB, until @pages pages can be
 * stored without a page fault.  False if that is so, or there is no memory.
 */
bool page_pool_prepare(PagePool *pool, uint64_t pages);

/* One more reference; nothing for PAGE_AS_BASE and PAGE_ZERO */
void page_pool_ref(PagePool *pool, PageRef ref);

/*
 * Release one reference, the page with the last one; nothing for PAGE_AS_BASE
 * and PAGE_ZERO.  Asserts that the page is there.
 */
void page_pool_unref(PagePool *pool, PageRef ref);

/*
 * The page_size bytes of a stored page, aligned to the smaller of page_size and
 * the host's page.  They stay there until the last reference is released.
 */
const uint8_t *page_pool_page(const PagePool *pool, PageRef ref);

/* References to a stored page: of the caller, and of tables of trees */
uint32_t page_pool_refs(const PagePool *pool, PageRef ref);

/* Number of pages stored now */
uint64_t page_pool_pages(const PagePool *pool);

/*
 * Bytes of memory in use: pages, and tables of the pool and of all its trees.
 * Memory of a released page is in use until another page gets it, or until its
 * chunk, the neighbours in 2 MiB, has no page left.
 */
uint64_t page_pool_bytes(const PagePool *pool);

/* For trees: @bytes more of tables are in use, or fewer if below 0 */
void page_pool_add_tables(PagePool *pool, int64_t bytes);

#endif
