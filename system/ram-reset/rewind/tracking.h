/*
 * RAM reset: knowing what has been written to since RAM was a snapshot's
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef RAM_RESET_REWIND_TRACKING_H
#define RAM_RESET_REWIND_TRACKING_H

#include <glib.h>
#include <stdbool.h>
#include "qapi/qapi-types-ram-reset.h"

/*
 * With the BQL held.  vCPUs are stopped and I/O drained for tracking_start()
 * and tracking_begin_anew(); @baseline is an array of BaselineBlock.
 */

/*
 * Track what is written to @baseline, if that is not done already.  Returns the
 * blocker, owned by the caller, if that fails, else NULL.
 */
RamResetBlocker *tracking_start(const GArray *baseline);

/* End it, if it has been started */
void tracking_stop(void);

/* All that has been written to so far does not count any more */
void tracking_begin_anew(const GArray *baseline);

/* There is more RAM than when it was started */
void tracking_ram_added(void);

/*
 * Why guest memory may have an unlogged writer, owned by the caller; NULL if it
 * has none
 */
RamResetBlocker *tracking_blocker(void);

/* Warn, once, that there are only whole loads */
void tracking_warn(const RamResetBlocker *why);

#endif
