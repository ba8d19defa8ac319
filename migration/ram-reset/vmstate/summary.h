/*
 * What a saved VM state says of itself, read without loading it
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef MIGRATION_RAM_RESET_VMSTATE_SUMMARY_H
#define MIGRATION_RAM_RESET_VMSTATE_SUMMARY_H

#include "block/snapshot.h"

/**
 * RamResetSummary: what the VM state of a snapshot begins with
 *
 * @known: @machine, the capabilities and @blocks are what it says; otherwise
 *     the format of the image or of the VM state does not allow to look
 * @machine: the machine type; NULL if the VM state does not say
 * @ignore_shared: migration capability x-ignore-shared was on
 * @mapped_ram: migration capability mapped-ram was on
 * @blocks: name of a RAM block -> its uint64_t length in bytes
 * @cpus: the cpu_index of each CPU, a uint32_t; NULL if that is not known
 * @checksum: of samples of the VM state; NULL if it was not asked for, or
 *     the VM state cannot be read
 */
typedef struct RamResetSummary {
    bool known;
    char *machine;
    bool ignore_shared, mapped_ram;
    GHashTable *blocks;
    GArray *cpus;
    char *checksum;
} RamResetSummary;

/**
 * ram_reset_summary_read: look into the VM state of @sn
 *
 * @bs: where the VM state is; the snapshot need not be the current one
 * @with_checksum: read the samples, too, which takes some more reads
 *
 * Reads by an image of its own, so nothing changes.
 *
 * Returns: NULL with @errp set if it is no VM state
 */
RamResetSummary *ram_reset_summary_read(BlockDriverState *bs,
                                        const QEMUSnapshotInfo *sn,
                                        bool with_checksum, Error **errp);

void ram_reset_summary_free(RamResetSummary *summary);

#endif
