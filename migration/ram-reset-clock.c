/*
 * The clock of vCPUs that a load takes back: ticks, which are TCG's TSC
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/seqlock.h"
#include "qemu/thread.h"
#include "qemu/timer.h"
#include "system/cpu-timers-internal.h"
#include "migration/ram-reset-clock.h"

/*
 * cpu_get_ticks() never returns less than it did before, so that the ticks do
 * not go back when the host's counter does, after a suspend.  It adjusts the
 * offset instead, the one that has just been loaded.  QEMU_CLOCK_VIRTUAL, which
 * all other clocks of the guest derive from, is what it was at the save: the
 * guest would find itself as much later as it ran since, with all timers late.
 */
void ram_reset_ticks_go_back(void)
{
    seqlock_write_lock(&timers_state.vm_clock_seqlock,
                       &timers_state.vm_clock_lock);
    timers_state.cpu_ticks_prev = INT64_MIN;
    seqlock_write_unlock(&timers_state.vm_clock_seqlock,
                         &timers_state.vm_clock_lock);
}
