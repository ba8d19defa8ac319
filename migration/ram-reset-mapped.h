/*
 * Loading snapshots that were saved with migration capability mapped-ram
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef MIGRATION_RAM_RESET_MAPPED_H
#define MIGRATION_RAM_RESET_MAPPED_H

/**
 * ram_reset_mapped_ram_blocker: why QEMU cannot save or load snapshots with the
 * capabilities that are set; NULL if it can
 */
const char *ram_reset_mapped_ram_blocker(void);

#endif
