/*
 * Clocks of vCPUs that a load takes back
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef MIGRATION_RAM_RESET_CLOCK_H
#define MIGRATION_RAM_RESET_CLOCK_H

/**
 * ram_reset_ticks_go_back: let cpu_get_ticks() go on from what has been loaded
 *
 * With the BQL held, and vCPUs stopped.
 */
void ram_reset_ticks_go_back(void);

#endif
