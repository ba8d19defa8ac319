/*
 * RAM reset: device timers that a load does not set
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef RAM_RESET_MACHINE_TIMERS_H
#define RAM_RESET_MACHINE_TIMERS_H

/**
 * ram_reset_expire_timers: a load has taken the guest's clock back
 *
 * A timer that the snapshot does not have would wait until the guest's clock
 * reaches its time before the load again.  A device whose work waits for such a
 * timer goes on as if the timer had expired.  BQL held, the VM stopped.
 */
void ram_reset_expire_timers(void);

#endif
