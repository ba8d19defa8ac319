/*
 * RAM reset: which pages have been written to
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef RAM_RESET_REWIND_DIRTY_LOG_H
#define RAM_RESET_REWIND_DIRTY_LOG_H

#include "exec/cpu-common.h"

/*
 * QEMU's global dirty log, under a flag of our own.  Whoever writes to guest
 * RAM is in it if a migration would notice: vCPUs, devices, the monitor.  Its
 * bits are those of the migration client, so a migration, or a savevm, takes
 * them away; dirty_bits_taken of RamResetFlags is set then.  Discarding pages
 * is not writing.
 *
 * All functions: BQL held, and vCPUs stopped and I/O drained other than for
 * start and stop.
 */

/* All pages may be dirty at first.  False with @errp set if that fails */
bool ram_reset_dirty_start(Error **errp);
void ram_reset_dirty_stop(void);

/* Whether anybody has the log on, or has had while the guest is stopped */
bool ram_reset_dirty_log_is_on(void);

/*
 * Have all memory in the log, if @rb is mapped: what is plugged is mapped
 * before it is registered as something to migrate, and is not in a log that
 * was on before.
 */
void ram_reset_dirty_watch(RAMBlock *rb);

/* Have accelerators tell what they know, for all blocks */
void ram_reset_dirty_sync(void);

/* Copy @rb's bits, one for each target page, to @bits, whole words */
void ram_reset_dirty_look(RAMBlock *rb, unsigned long *bits);

/* Around calls of ram_reset_dirty_take(): the end wants what the begin gave */
bool ram_reset_dirty_begin_taking(void);
void ram_reset_dirty_end_taking(bool before);

/*
 * The same, and clear them: writes to those pages will be seen anew, other than
 * to those in @untracked.  Those are dirty at every sync, written to or not, if
 * it is KVM's bitmaps that tell; otherwise they are treated like all others.
 * @untracked may be NULL.
 *
 * Returns: how many bits were set
 */
uint64_t ram_reset_dirty_take(RAMBlock *rb, unsigned long *bits,
                              const unsigned long *untracked);

/* Have the display look at all of @rb, if it shows any */
void ram_reset_dirty_show(RAMBlock *rb);

#endif
