/*
 * RAM reset: timers of devices that a load does not set
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef MIGRATION_RAM_RESET_TIMERS_H
#define MIGRATION_RAM_RESET_TIMERS_H

/**
 * ram_reset_expire_timers: a load has taken the guest's clock back
 *
 * A timer of it that the snapshot does not have would wait until the clock is
 * again where it was before the load.  Where a device's work waits for one, it
 * goes on as if the timer had expired.  With the BQL held, the VM stopped.
 */
void ram_reset_expire_timers(void);

#endif
