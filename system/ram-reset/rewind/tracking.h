/*
 * RAM reset: knowing what has been written to since RAM was a snapshot's
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef RAM_RESET_REWIND_TRACKING_H
#define RAM_RESET_REWIND_TRACKING_H

#include "qemu/typedefs.h"

/*
 * With the BQL held.  vCPUs are stopped and I/O drained for tracking_start()
 * and tracking_begin_anew(); @baseline is an array of BaselineBlock.
 */

/*
 * Track what is written to @baseline, if that is not done already.  False with
 * @errp set if that fails.
 */
bool tracking_start(const GArray *baseline, Error **errp);

/* End it, if it has been started */
void tracking_stop(void);

/* All that has been written to so far does not count any more */
void tracking_begin_anew(const GArray *baseline);

/* There is more RAM than when it was started */
void tracking_ram_added(void);

/*
 * Why something may be written to that is not tracked, a sentence to be freed;
 * NULL if nothing can
 */
char *tracking_blind_spot(void);

/* Tell the user, unless that has been done, that there are only whole loads */
void tracking_warn(const char *why);

#endif
