/*
 * RAM reset: track the writes since RAM was equal to a snapshot
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef RAM_RESET_REWIND_TRACKING_H
#define RAM_RESET_REWIND_TRACKING_H

#include <glib.h>
#include <stdbool.h>
#include "qapi/qapi-types-ram-reset.h"

/*
 * All functions: BQL held.  For tracking_start() and tracking_restart(), vCPUs
 * are stopped and I/O is drained; @baseline is an array of BaselineBlock.
 */

/*
 * Track writes to @baseline, unless they are tracked already.  Returns the
 * blocker, owned by the caller, if that fails; NULL on success.
 */
RamResetBlocker *tracking_start(const GArray *baseline);

/* Stop tracking, if it has been started */
void tracking_stop(void);

/* Ignore all writes so far */
void tracking_restart(const GArray *baseline);

/* Report that RAM has been added, which the log may lack */
void tracking_ram_added(void);

/*
 * Returns the reason why guest memory may have an unlogged writer, owned by the
 * caller; NULL if it has none
 */
RamResetBlocker *tracking_blocker(void);

/* Warn, once in a process, that each load is a whole load */
void tracking_warn(const RamResetBlocker *why);

#endif
