/*
 * RAM reset: transfers on buses that a load does not end
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef RAM_RESET_MACHINE_TRANSFERS_H
#define RAM_RESET_MACHINE_TRANSFERS_H

/**
 * ram_reset_end_transfers: forget the transfers that the guest has begun on I2C
 * buses, before a load
 *
 * No reset ends them, and a load only adds those of the snapshot.  BQL held, VM
 * stopped.
 */
void ram_reset_end_transfers(void);

#endif
