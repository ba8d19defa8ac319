/*
 * RAM reset: devices served by other processes, or by the kernel
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef RAM_RESET_BLOCK_VHOST_H
#define RAM_RESET_BLOCK_VHOST_H

#include "qapi/qapi-types-ram-reset.h"

/*
 * QEMU starts and ends the log of a vhost device (see listeners.h) with the
 * dirty log.  It merges it into the dirty log each time that the device stops,
 * as it does when the guest stops.  A migration needs no more.  A load does,
 * since QEMU and the guest continue after it:
 *
 * - A disk's back end may report that it has stopped while requests are
 *   unfinished, and write, and log, later.  So when the guest stops, we wait
 *   until no request is left before devices stop, and check again afterwards.
 * - A back end that starts before it has been given the log must find no
 *   request then.
 * - When the guest, or a lost connection, stops a device while the guest runs,
 *   nobody has waited: the log may lack all later writes.
 * - QEMU loses the log's bits for memory that is mapped again under a device.
 *
 * In all these cases the next load must be a whole one.  BQL held.
 */

/* Watch vhost devices from now on */
void ram_reset_watch_vhost(void);

/* Whether a device may be writing to memory now, the guest being stopped */
bool ram_reset_vhost_is_busy(void);

/*
 * The reason why QEMU's dirty log may lack writes since
 * ram_reset_vhost_restart_log(); RAM_RESET_BLOCKER__MAX if it lacks none
 */
RamResetBlockerId ram_reset_vhost_unlogged(void);

/* Ignore all writes so far */
void ram_reset_vhost_restart_log(void);

#endif
