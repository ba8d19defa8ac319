/*
 * RAM reset: the log of pages that have been written to
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef RAM_RESET_REWIND_DIRTY_LOG_H
#define RAM_RESET_REWIND_DIRTY_LOG_H

#include "exec/cpu-common.h"

/*
 * QEMU's global dirty log, under a flag of its own.  The log has each write to
 * guest RAM that a migration would notice: by vCPUs, devices and the monitor.
 * Its bits are those of the migration client, so a migration or a savevm clears
 * them, and sets dirty_bits_taken of RamResetFlags.  Discarding a page is no
 * write.
 *
 * All functions: BQL held.  Except for start and stop, vCPUs are stopped and
 * I/O is drained.
 */

/*
 * Start the log; all pages may be dirty at first.  False with @errp set if that
 * fails.
 */
bool ram_reset_dirty_start(Error **errp);
void ram_reset_dirty_stop(void);

/*
 * Whether the log is on for any user.  If a user stops it while the guest is
 * stopped, it stays on until the guest runs.
 */
bool ram_reset_dirty_log_is_on(void);

/*
 * Notify listeners that all memory is logged, if @rb is mapped.  Plugged memory
 * is mapped before it is registered for migration, so a log that was on before
 * lacks it.
 */
void ram_reset_dirty_renotify(RAMBlock *rb);

/* Fetch the dirty pages of all blocks from accelerators */
void ram_reset_dirty_sync(void);

/* Copy the bits of @rb, one for each target page, to @bits, in whole words */
void ram_reset_dirty_read(RAMBlock *rb, unsigned long *bits);

/*
 * Enclose calls of ram_reset_dirty_fetch().  @before is the result of
 * ram_reset_dirty_begin_fetch().
 */
bool ram_reset_dirty_begin_fetch(void);
void ram_reset_dirty_end_fetch(bool before);

/*
 * Copy the bits as ram_reset_dirty_read() does, and clear them: the log has
 * later writes to these pages.  If KVM logs in bitmaps, pages in @untracked
 * stay writable, and are dirty at every sync; otherwise they are treated like
 * all others.  @untracked may be NULL.
 *
 * Returns: the number of bits that were set
 */
uint64_t ram_reset_dirty_fetch(RAMBlock *rb, unsigned long *bits,
                               const unsigned long *untracked);

/* Make the display redraw all of @rb, if it shows any of it */
void ram_reset_dirty_redraw(RAMBlock *rb);

#endif
