/*
 * The pages in which one snapshot of a RAM block differs from a base copy
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef RAM_RESET_BLOCK_PAGE_TREE_H
#define RAM_RESET_BLOCK_PAGE_TREE_H

#include <glib.h>
#include "system/ram-reset/block/page-pool.h"

/*
 * A PageRef for each page of a block.  Trees of one pool share tables: a table
 * is copied when one of its trees changes.  A part of the block in which all
 * pages are PAGE_AS_BASE has no table.
 *
 * The tree owns one reference of each stored page in each of its tables; a
 * shared table has its references once.
 *
 * Page numbers are below the tree's number of pages, which is asserted.
 * Threads: see page-pool.h.
 */
typedef struct PageTree PageTree;

/* Largest number of pages of a tree */
#define PAGE_TREE_MAX (UINT64_C(1) << 36)

/*
 * All @pages pages are PAGE_AS_BASE.  The caller owns the tree; it ends before
 * @pool.  Never NULL.
 */
PageTree *page_tree_new(PagePool *pool, uint64_t pages);

/*
 * A tree with the same content, of the same pool, owned by the caller.  It
 * shares all tables with @t, which takes the same short time for any content.
 * Never NULL.
 */
PageTree *page_tree_copy(PageTree *t);

/* Release all pages that only this tree has; NULL is fine */
void page_tree_free(PageTree *t);

/* Whether all pages are PAGE_AS_BASE */
bool page_tree_is_empty(const PageTree *t);

/* The caller gets no reference: it is valid until @t changes */
PageRef page_tree_get(const PageTree *t, uint64_t page);

/*
 * Set the content of a page.  Takes the caller's reference of @ref, and
 * releases the one of the former content.  False if there is no memory: the
 * tree is as before then, and the caller's reference is released all the same.
 * PAGE_NO_MEMORY as @ref does nothing and returns false, so that the result of
 * page_pool_put() needs no check.  PAGE_AS_BASE may need memory as well.
 */
bool page_tree_set(PageTree *t, uint64_t page, PageRef ref);

/*
 * Set the bits of all pages whose PageRef in @a is another than in @b, and
 * leave all others.  @bits: a bit for each page, bit 0 of word 0 for the first.
 * Both are of one pool and have the same number of pages.  NULL is a tree with
 * all pages PAGE_AS_BASE.  Takes time for tables that are not shared.
 */
void page_tree_diff(const PageTree *a, const PageTree *b, unsigned long *bits);

/* Number of pages for which page_tree_diff() would set the bits */
uint64_t page_tree_count_diff(const PageTree *a, const PageTree *b);

/*
 * Count the stored pages of @t.  @shared: pages that another tree, the caller,
 * or another page of @t refers to as well; @own: all others, which
 * page_tree_free() would release.  Takes time for all tables of @t.
 *
 * @seen: a direct hash table, empty before the first of several calls: pages
 * that an earlier call has counted do not count again, so that the sums are of
 * all these trees.  No tree may change between the calls.  NULL: only @t counts.
 */
void page_tree_count(const PageTree *t, GHashTable *seen, uint64_t *shared,
                     uint64_t *own);

#endif
