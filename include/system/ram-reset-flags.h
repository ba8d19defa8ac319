/*
 * RAM reset: flags for callers that cannot afford a function call
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef SYSTEM_RAM_RESET_FLAGS_H
#define SYSTEM_RAM_RESET_FLAGS_H

/**
 * RamResetFlags: all are false while there has been no ram-reset object, and no
 * savevm or migration
 *
 * @running: A reset runs: ram_reset_begin() sets it, ram_reset_finish() clears
 *     it.  Code that loads RAM and auto.c read it.  BQL held.
 *
 * @tracking: Writes are tracked, see ram_reset_take_point().  tracking.c
 *     sets it, with the BQL held; code that discards memory or ends a mapping
 *     reads it, in any thread.  Atomic.
 *
 * @noting: DMA mappings are noted.  mappings.c sets it, with the BQL held; code
 *     that begins or ends a mapping reads it, in any thread.  Atomic.
 *
 * @any_mapped: RAM is mapped from a template, see ram_reset_template_load().
 *     overlay-map.c sets it, under its lock; ram_reset_begin() reads it, and so
 *     does code that discards memory, in any thread.  Atomic.
 *
 * @dirty_bits_taken: Another user has cleared bits of the dirty log since the
 *     baseline was taken.  ram_reset_save_sync() sets it, in any thread;
 *     rewind.c clears and reads it, with the BQL held.  Atomic.
 *
 * @saving: savevm saves RAM, so that nobody writes to it.  migration/
 *     ram-reset/save.c sets it, in the thread that saves; code that saves RAM
 *     reads it, in any thread.  Atomic.
 *
 * @roms_stay: A system reset need not write ROMs to memory, since a rewind
 *     restores it.  migration/ram-reset/devices.c sets it.  BQL held.
 */
typedef struct RamResetFlags {
    bool running, tracking, noting, any_mapped, dirty_bits_taken, saving,
         roms_stay;
} RamResetFlags;

extern RamResetFlags ram_reset_flags;

#endif
