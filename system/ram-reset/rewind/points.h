/*
 * RAM reset: the points that a rewind can go to
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef RAM_RESET_REWIND_POINTS_H
#define RAM_RESET_REWIND_POINTS_H

#include <glib.h>
#include <stdbool.h>
#include "system/ram-reset/block/page-tree.h"

/*
 * The baseline never changes while it exists.  A point is the RAM of one
 * snapshot: a tree for each block of the baseline has the pages in which the
 * snapshot differs from it.  Points share the pages and tables in which they
 * agree.  The position is the point that RAM was equal to when the dirty log
 * was fetched last; a snapshot may be dropped while it is the position.
 *
 * All functions: BQL held.
 */

/*
 * Why a point is pinned: no image has this RAM, or a user wants it to stay.  The
 * first holds whatever happens, the second when there is no room.
 */
typedef enum PointPin {
    POINT_PIN_MEMORY,
    POINT_PIN_USER,
    POINT_PIN__MAX
} PointPin;

/*
 * @trees: of @nr blocks, in the order of the baseline; NULL for a block without
 *     a copy
 */
typedef struct RewindPoint {
    unsigned nr;
    PageTree **trees;
    bool pinned[POINT_PIN__MAX];
} RewindPoint;

/*
 * Begin with no points, for @baseline, an array of BaselineBlock, with pages of
 * @page_size bytes.  The baseline is the position.
 */
void points_begin(const GArray *baseline, size_t page_size);

/* Free all points */
void points_end(void);

/* A point equal to the baseline, or to @p; owned by the caller */
RewindPoint *point_new(const GArray *baseline);
RewindPoint *point_copy(const RewindPoint *p);
void point_free(RewindPoint *p);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(RewindPoint, point_free)

/* The position; NULL if it is unknown */
const RewindPoint *points_position(void);

/* Takes the ownership of @p; NULL: the position is unknown from now on */
void points_set_position(RewindPoint *p);

/* Make the position a point with a number, never used before and not 0 */
uint64_t points_add_position(void);

/* Make the point with this number, which exists, the position */
void points_go_to(uint64_t number);

/*
 * NULL if there is no point with this number (any more); points_position() if
 * that is the same point
 */
const RewindPoint *points_find(uint64_t number);

/* Free the point with this number, if there is one */
void points_drop(uint64_t number);

/* Whether there is a point with another number than @number */
bool points_has_others(uint64_t number);

/* Pin the point with this number, if it is there, until it is dropped */
void points_pin(uint64_t number, PointPin pin);

/* The opposite */
void points_unpin(uint64_t number, PointPin pin);

/* Whether any point is pinned for this reason, so that the baseline must stay */
bool points_are_pinned(PointPin pin);

/* The pool of all points, between points_begin() and points_end() */
PagePool *points_pool(void);

/* Bytes of the pages that all points have beside the baseline */
uint64_t points_size(void);

/* Bytes of the tables of all points */
uint64_t points_tables(void);

#endif
