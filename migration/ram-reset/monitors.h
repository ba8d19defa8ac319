/*
 * Monitors on TCP without Nagle's algorithm
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef MIGRATION_RAM_RESET_MONITORS_H
#define MIGRATION_RAM_RESET_MONITORS_H

/**
 * ram_reset_monitors_no_delay: disable Nagle's algorithm for all monitors
 *
 * QMP sends an event when the VM stops for a load.  With the algorithm, the
 * answer to the command waits until the client's host has acknowledged the
 * event, which takes 40 ms with Linux.  Costs a system call for each monitor on
 * a socket, once.  Does nothing without a ram-reset object.  With the BQL held.
 */
void ram_reset_monitors_no_delay(void);

#endif
