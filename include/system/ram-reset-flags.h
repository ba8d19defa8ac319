/*
 * RAM reset: what is going on, for those who must not take time to ask
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef SYSTEM_RAM_RESET_FLAGS_H
#define SYSTEM_RAM_RESET_FLAGS_H

/**
 * RamResetFlags: all are false as long as there has been no ram-reset object,
 * and no savevm or migration
 *
 * @running: From ram_reset_begin() to ram_reset_finish(), which set it, with
 *     the BQL held; so is it read, by what loads RAM and by auto.c.
 *
 * @tracking: What is written to is known, see ram_reset_take_baseline().
 *     tracking.c sets it, with the BQL held; who discards memory or ends a DMA
 *     mapping reads it, in any thread.  Atomic.
 *
 * @noting: DMA mappings are noted.  mappings.c sets it, with the BQL held; who
 *     begins or ends one reads it, in any thread.  Atomic.
 *
 * @any_mapped: RAM is mapped from a template, see ram_reset_template_load().
 *     overlay-map.c sets it, under its lock; who discards memory reads it, in
 *     any thread, and ram_reset_begin().  Atomic.
 *
 * @dirty_bits_taken: Somebody else has cleared bits of the dirty log since the
 *     baseline was taken.  ram_reset_save_sync() sets it, in any thread;
 *     rewind.c clears and reads it, with the BQL held.  Atomic.
 *
 * @saving: savevm saves RAM, so that nobody writes to it.  migration/
 *     ram-reset-save.c sets it, in the thread that saves; who saves RAM reads
 *     it, in any thread.  Atomic.
 *
 * @roms_stay: A system reset need not write ROMs to memory, a rewind restores
 *     it.  migration/ram-reset-devices.c sets it, with the BQL held; so is it
 *     read.
 */
typedef struct RamResetFlags {
    bool running, tracking, noting, any_mapped, dirty_bits_taken, saving,
         roms_stay;
} RamResetFlags;

extern RamResetFlags ram_reset_flags;

#endif
