/*
 * Monitors on TCP answer at once
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef MIGRATION_RAM_RESET_MONITORS_H
#define MIGRATION_RAM_RESET_MONITORS_H

/**
 * ram_reset_monitors_no_delay: disable Nagle's algorithm for all monitors
 *
 * QMP sends an event when the VM stops for a load.  The answer to the command
 * would wait until the client's host has acknowledged that event, which takes
 * 40 ms with Linux.  Costs a system call for each monitor on a socket, once.
 * With the BQL held.  Does nothing without a ram-reset object.
 */
void ram_reset_monitors_no_delay(void);

#endif
