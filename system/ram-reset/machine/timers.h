/*
 * RAM reset: device timers that a load does not set
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef RAM_RESET_MACHINE_TIMERS_H
#define RAM_RESET_MACHINE_TIMERS_H

/**
 * ram_reset_expire_timers: expire timers after a load has set the guest's clock
 * back
 *
 * A timer that the snapshot does not have would wait until the guest's clock
 * reaches the time from before the load again.  A device whose work waits for
 * such a timer continues as if the timer had expired.  BQL held, VM stopped.
 */
void ram_reset_expire_timers(void);

#endif
