/*
 * Table of the parts of blocks that are mapped from a template
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef RAM_RESET_BLOCK_OVERLAY_MAP_H
#define RAM_RESET_BLOCK_OVERLAY_MAP_H

#include "system/ram-reset/prim/prim.h"

/*
 * The limit of runs: each is a mapping, and a process has a limited number of
 * them
 */
#define OVERLAY_MAP_MAX 1024

/*
 * A block is identified by its address in this process, and bytes count from
 * there.  @rb, which is never dereferenced, distinguishes it from another block
 * mapped at the same address since; NULL matches any.
 *
 * Any thread may call these functions: a lock protects the table.  Only
 * any_mapped of RamResetFlags, which is set if there is any block, is read
 * without it.
 */

/*
 * @fd: the mapped file, which stays open; @runs: array of PrimRange, in rising
 * order, not adjacent
 */
void overlay_map_add(const void *host, const void *rb, int fd,
                     const GArray *runs);

/*
 * That file, which is the same for all blocks, while there is any block; else
 * -1.  BQL held
 */
int overlay_map_fd(void);

/* Whether the block is in the table, and mapped from the same file as @fd */
bool overlay_map_is_of(const void *host, const void *rb, int fd);

void overlay_map_remove(const void *host);

bool overlay_map_has(const void *host, const void *rb);

/* Array of PrimRange, to be freed; NULL if the block is not in the table */
GArray *overlay_map_copy(const void *host, const void *rb);

/* Whether any run overlaps [@start, @end) */
bool overlay_map_touches(const void *host, uint64_t start, uint64_t end);

/*
 * Take [@start, @end) out of the runs after @make has put other memory there.
 * @make is called with the lock held; @opaque is its argument.  It is not
 * called if @max parts of all blocks have been taken out.
 *
 * Returns: 1 if no run lies there, 0 if the range has been taken out, -ENOMEM
 *     if too many parts have been taken out before, or -errno from @make
 */
int overlay_map_cut(const void *host, const void *rb, uint64_t start,
                    uint64_t end, unsigned max,
                    int (*make)(void *opaque), void *opaque);

#endif
