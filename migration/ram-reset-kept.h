/*
 * What a VM state has beside RAM, kept in memory
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef MIGRATION_RAM_RESET_KEPT_H
#define MIGRATION_RAM_RESET_KEPT_H

#include "block/snapshot.h"
#include "migration/qemu-file-types.h"

/*
 * A load that skips RAM reads little of the VM state, but each read of a disk
 * costs the wake-up of a thread and its answer.  So what such a load reads is
 * kept from the first one on, of one snapshot, and until something else is
 * loaded or saved.  All functions are called with the BQL held.
 */

/**
 * ram_reset_kept_open: read a VM state, from memory where that is kept
 *
 * @bs: where the VM state is
 * @sn: the snapshot in @bs
 * @ram_end: where in the VM state the footer of RAM's last section is, if the
 *     load is likely to go on from there; else 0, and nothing is kept
 *
 * Positions in the file are those in the VM state.  What is not kept, and what
 * cannot be, is read from @bs.
 *
 * Returns: a file, to be closed by the caller
 */
QEMUFile *ram_reset_kept_open(BlockDriverState *bs, const QEMUSnapshotInfo *sn,
                              int64_t ram_end);

/**
 * ram_reset_kept_devices: what is kept of the snapshot @key behind RAM
 *
 * Returns: a borrowed reference, from the footer of RAM's last section on; NULL
 *     if nothing is kept
 */
const uint8_t *ram_reset_kept_devices(const char *key, size_t *size);

/**
 * ram_reset_kept_leave_out: until ram_reset_kept_leave_nothing_out(), files
 * that are read go on at @end when they come to @start, in what is kept behind
 * RAM
 *
 * Nothing must be left out up to the end.
 */
void ram_reset_kept_leave_out(uint64_t start, uint64_t end);
void ram_reset_kept_leave_nothing_out(void);

/**
 * ram_reset_kept_forget: what is kept is of no use any more, or not trusted
 */
void ram_reset_kept_forget(void);

#endif
