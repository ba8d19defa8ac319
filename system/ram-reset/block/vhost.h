/*
 * RAM reset: other processes, and the kernel, that do a device's work
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef RAM_RESET_BLOCK_VHOST_H
#define RAM_RESET_BLOCK_VHOST_H

#include "qapi/qapi-types-ram-reset.h"

/*
 * QEMU starts and ends the log of a vhost device (see listeners.h) with the
 * dirty log, and merges it into that each time when the device stops, as it
 * does when the guest stops.  That is what a migration relies on.  A load needs
 * more, since QEMU and guest go on after it:
 *
 * - A disk's back end may answer that it has stopped while requests are under
 *   way, and write, and log, later.  So when the guest stops, and before
 *   devices do, we wait until there are no more requests, and have a look
 *   afterwards at whether that is so.
 * - One that begins when it is started, before it has been given the log, must
 *   find no request then.
 * - When the guest, or a lost connection, stops a device while the guest runs,
 *   nobody has waited: the log may lack what is written from then on.
 * - QEMU loses the log's bits of memory that is mapped anew under a device.
 *
 * In all these cases the next load has to be a whole one.  With the BQL held.
 */

/* Do so from now on */
void ram_reset_watch_vhost(void);

/* Whether a device may be writing to memory now, the guest being stopped */
bool ram_reset_vhost_is_busy(void);

/*
 * Why QEMU's dirty log may lack what has been written since
 * ram_reset_vhost_begin_anew(); RAM_RESET_BLOCKER__MAX if it lacks nothing
 */
RamResetBlockerId ram_reset_vhost_unseen(void);

/* What has been written so far does not matter */
void ram_reset_vhost_begin_anew(void);

#endif
