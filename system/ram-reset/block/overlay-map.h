/*
 * Which parts of blocks are mapped from a template
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef RAM_RESET_BLOCK_OVERLAY_MAP_H
#define RAM_RESET_BLOCK_OVERLAY_MAP_H

#include "system/ram-reset/prim/prim.h"

/* Each is a mapping, of which a process has a limited number */
#define OVERLAY_MAP_MAX 1024

/*
 * A block goes by its address in this process, and bytes count from there.
 * @rb, which nobody looks into, tells it from another one that has been mapped
 * at the same address since; NULL for whichever it is.
 *
 * Any thread: there is a lock around all that is known.  Only whether there is
 * any block, any_mapped of RamResetFlags, is read without it.
 */

/*
 * @fd: the file that they are mapped from, which stays open; @runs: of
 * PrimRange, in rising order, not adjacent
 */
void overlay_map_add(const void *host, const void *rb, int fd,
                     const GArray *runs);

/*
 * That file, which is the same for all, as long as there is any block; else -1.
 * With the BQL held
 */
int overlay_map_fd(void);

void overlay_map_remove(const void *host);

bool overlay_map_has(const void *host, const void *rb);

/* Of PrimRange, to be freed; NULL if the block is not known */
GArray *overlay_map_copy(const void *host, const void *rb);

/* Whether any run lies in [@start, @end), if only in part */
bool overlay_map_touches(const void *host, uint64_t start, uint64_t end);

/*
 * Take [@start, @end) out of the runs when @make has put other memory there.
 * That is called with the lock held, and not at all if @max have been taken out
 * of all blocks; @opaque is for it.
 *
 * Returns: 1 if no run lies there, 0 if they have been taken out, -ENOMEM if
 *     too many have been before, or -errno, which @make has returned
 */
int overlay_map_take_out(const void *host, const void *rb, uint64_t start,
                         uint64_t end, unsigned max,
                         int (*make)(void *opaque), void *opaque);

#endif
