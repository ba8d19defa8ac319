/*
 * Arrays of ranges: joined, and cut
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef RAM_RESET_PRIM_RANGES_H
#define RAM_RESET_PRIM_RANGES_H

#include "system/ram-reset/prim/prim.h"

/* Returns an array of PrimRange, none of them empty */
GArray *prim_ranges_new(void);

/*
 * Add [@start, @end) to @ranges, unless it is empty.  It becomes part of the
 * last range if it begins in that, or at most @gap behind it.
 */
void prim_ranges_add(GArray *ranges, uint64_t start, uint64_t end,
                     uint64_t gap);

/* Add the parts of @from that lie in [@start, @end) */
void prim_ranges_add_within(GArray *ranges, const GArray *from, uint64_t start,
                            uint64_t end);

/*
 * Join ranges with less than @gap bytes between them; then with less than twice
 * that, and so on, until there are at most @max.  It ends before that if the
 * result would have more than @times as many bytes.  @ranges: in rising order,
 * not adjacent; freed.  Returns a new array, or @ranges
 */
GArray *prim_ranges_join(GArray *ranges, unsigned max, uint64_t gap,
                         unsigned times);

/* The sum of their lengths */
uint64_t prim_ranges_size(const GArray *ranges);

/* Take off @rest, and return, what lies before the next multiple of @unit */
static inline PrimRange prim_range_cut(PrimRange *rest, uint64_t unit)
{
    PrimRange piece = {
        rest->start, MIN(rest->len, unit - rest->start % unit),
    };

    rest->start += piece.len;
    rest->len -= piece.len;
    return piece;
}

#endif
