/*
 * The job that stores a snapshot, which is in memory only, in its image
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef MIGRATION_RAM_RESET_STORE_H
#define MIGRATION_RAM_RESET_STORE_H

/**
 * ram_reset_store_cancel_all: cancel all such jobs; with the BQL held
 */
void ram_reset_store_cancel_all(void);

#endif
