/*
 * RAM reset: going back by undoing what has changed
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef SYSTEM_RAM_RESET_REWIND_H
#define SYSTEM_RAM_RESET_REWIND_H

#include "system/ram-reset-load.h"

/*
 * For objects with rewind=on.  Whoever knows that RAM is what a snapshot has
 * calls ram_reset_take_baseline().  When RAM is to be that once more and there
 * is no blocker, ram_reset_rewind() takes the place of ram_reset_begin() and of
 * all of the loading, and ram_reset_finish() follows.
 *
 * All functions are called with the BQL held.
 */

/**
 * ram_reset_slots_change: tell that a load begins or has ended to remap memory
 *
 * @change: it begins.  Guest RAM is then not to be cleared in any dirty log but
 * by ram_reset_rewind(), and vCPUs are stopped, until it has ended.
 */
void ram_reset_slots_change(bool change);

/**
 * ram_reset_rewind_wanted: whether any object has rewind=on
 */
bool ram_reset_rewind_wanted(void);

/**
 * ram_reset_unchanged_devices_wanted: whether no object has
 * unchanged-devices=off: a load may leave devices alone
 */
bool ram_reset_unchanged_devices_wanted(void);

/**
 * ram_reset_take_baseline: keep a copy of RAM, and track what is written from
 * now on
 *
 * @loaded: RAM has just been loaded, so that devices have mapped nothing of it,
 *     or will map it anew
 *
 * vCPUs stopped, I/O drained; between ram_reset_complete_zeroing() and
 * ram_reset_finish(), or outside of a reset.  The baseline before it is lost.
 *
 * Returns: false if no object wants it, or if it is impossible, which is warned
 *     of once
 */
bool ram_reset_take_baseline(bool loaded);

/**
 * ram_reset_drop_baseline: RAM must not be rewound any more
 *
 * @why: the blocker from now on; not used if there was no baseline
 */
void ram_reset_drop_baseline(RamResetBlockerId why);

/**
 * ram_reset_block_baseline: the same, and @why is the blocker in any case
 */
void ram_reset_block_baseline(RamResetBlockerId why);

/**
 * ram_reset_stop_tracking: somebody else will use the dirty log, and expects
 * that it starts it.  The baseline is dropped.
 */
void ram_reset_stop_tracking(void);

/**
 * ram_reset_rewind_blocker: why ram_reset_rewind() must not be called
 *
 * Returns: NULL if it may be, otherwise a blocker, valid until the next call
 */
const RamResetBlocker *ram_reset_rewind_blocker(void);

/**
 * ram_reset_rewind: make RAM what the baseline has
 *
 * As for ram_reset_begin(), but all is done at once.
 */
void ram_reset_rewind(void);

/**
 * ram_reset_map_copy: the memory map of now, which is that of a snapshot
 *
 * Returns: an array for ram_reset_map_freeze(), owned by the caller
 */
GArray *ram_reset_map_copy(void);

/**
 * ram_reset_map_freeze: a snapshot is going to be loaded whose memory map is
 * @map.  If the map of now is the same, it stays so, whatever devices do, until
 * ram_reset_map_thaw().
 *
 * @map: of ram_reset_map_copy(); NULL if it is not known
 *
 * vCPUs stopped, I/O drained, devices not yet reset.
 *
 * Returns: whether it is frozen
 */
bool ram_reset_map_freeze(const GArray *map);

/**
 * ram_reset_map_thaw: the memory map becomes what devices have made of it
 */
void ram_reset_map_thaw(void);

/**
 * ram_reset_code_release: a load is over, or ram_reset_rewind() is given up
 *
 * @kept: what TCG has translated may be kept, other than of what
 *     ram_reset_rewind() has put back: RAM is as it has left it.  Else all is
 *     dropped, if QEMU has not done so.
 * @loaded: the load has succeeded, vCPUs' states are loaded
 */
void ram_reset_code_release(bool kept, bool loaded);

/**
 * ram_reset_query_rewind: what there is to say of the baseline, owned by the
 * caller; NULL unless an object has rewind=on
 */
RamResetRewindInfo *ram_reset_query_rewind(void);

#endif
