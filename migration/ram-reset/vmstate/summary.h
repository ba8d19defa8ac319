/*
 * The summary of a saved VM state, which is read without loading it
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef MIGRATION_RAM_RESET_VMSTATE_SUMMARY_H
#define MIGRATION_RAM_RESET_VMSTATE_SUMMARY_H

#include "block/snapshot.h"

/**
 * RamResetSummary: the header of a VM state, its CPUs and its checksum
 *
 * @known: @machine, the capabilities and @blocks have been read; false if the
 *     format of the image or of the VM state cannot be read without a load
 * @machine: the machine type; NULL if the VM state has none
 * @ignore_shared: migration capability x-ignore-shared was on
 * @mapped_ram: migration capability mapped-ram was on
 * @blocks: name of a RAM block -> its uint64_t length in bytes
 * @cpus: the cpu_index of each CPU, a uint32_t; NULL if it is unknown
 * @checksum: the checksum of samples of the VM state; NULL if the caller did
 *     not ask for it, or the VM state cannot be read
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
 * ram_reset_summary_read: read the summary of the VM state of @sn
 *
 * @bs: the image with the VM state; the snapshot need not be the current one
 * @with_checksum: read samples for the checksum, too
 *
 * Reads through a second image and does not change @bs.  With the BQL held.
 *
 * Returns: a summary, freed by the caller; NULL with @errp set if there is no
 *     VM state, or it is damaged
 */
RamResetSummary *ram_reset_summary_read(BlockDriverState *bs,
                                        const QEMUSnapshotInfo *sn,
                                        bool with_checksum, Error **errp);

/**
 * ram_reset_summary_of_memory: the summary of a VM state that no image has
 *
 * @f: @vmstate at its first byte, stays open
 * @ram_end: the position in it of the footer of the last RAM section, in bytes
 *
 * Returns: a summary without checksum, freed by the caller
 */
RamResetSummary *ram_reset_summary_of_memory(QEMUFile *f, GBytes *vmstate,
                                             uint64_t ram_end);

void ram_reset_summary_free(RamResetSummary *summary);

#endif
