/*
 * Trees of pages, and the same as arrays
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef RAM_RESET_TEST_PAGE_MODEL_H
#define RAM_RESET_TEST_PAGE_MODEL_H

#include "system/ram-reset/block/page-tree.h"

#define MAX_TREES 8

/*
 * Trees, and the same as arrays of ids.  A stored page begins and ends with its
 * id, which no other page has; other ids are PAGE_AS_BASE and PAGE_ZERO.
 */
typedef struct PageModel {
    PagePool *pool;
    uint64_t pages;
    uint64_t last_id;
    size_t page_size;
    uint64_t *page;
    PageTree *trees[MAX_TREES];
    uint64_t *ids[MAX_TREES];
} PageModel;

/* Tree 0 is there, and empty; the others are NULL */
PageModel *page_model_new(uint64_t pages, size_t page_size);

/* Frees all trees, and checks that nothing is left in the pool */
void page_model_free(PageModel *m);

/* @to is NULL before */
void page_model_copy(PageModel *m, unsigned from, unsigned to);
void page_model_drop(PageModel *m, unsigned i);

/* A new page; the caller owns a reference */
PageRef page_model_put(PageModel *m);

/* Takes the caller's reference; false if there is no memory */
bool page_model_set(PageModel *m, unsigned i, uint64_t page, PageRef ref);

/*
 * Compare all trees with their arrays, and the differences of some in both
 * directions.  The caller owns no reference.
 */
void page_model_check(const PageModel *m);

#endif
