/*
 * RAM reset: restore RAM by undoing its changes
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef SYSTEM_RAM_RESET_REWIND_H
#define SYSTEM_RAM_RESET_REWIND_H

#include "system/ram-reset-load.h"

/*
 * For objects with rewind=on.  A caller that knows that RAM is equal to a
 * snapshot calls ram_reset_take_point().  To load that snapshot again, if there
 * is no blocker and the point is still there, it calls ram_reset_rewind() in
 * place of ram_reset_begin() and of all loading; ram_reset_finish() follows.
 *
 * The first point is the baseline, a copy of RAM.  Each other one has copies of
 * the pages in which it differs, which it shares with others.
 *
 * All functions are called with the BQL held.
 */

/**
 * ram_reset_slots_change: report that a load begins or ends to remap memory
 *
 * @change: it begins.  Until it ends, vCPUs are stopped, and only
 * ram_reset_rewind() may clear guest RAM in any dirty log.
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
 * ram_reset_save_kind: the place for the RAM and the devices of a new snapshot
 */
RamResetSaveKind ram_reset_save_kind(void);

/**
 * RamResetPageStore: a place that has the RAM of one snapshot and can be read
 * as long as the snapshot exists
 *
 * @id: differs from that of any other snapshot
 * @find: set the bits in @pages, one for each target page, of the pages of @rb
 *     that are not zero; returns false if the store does not know them
 * @read: read @pages, which are found, to @to, with the layout of the block;
 *     @pages has @nr bits.  @rb may have been freed, so the name is passed.
 *     Returns false with @errp set
 * @is_there: whether the image is still there; this is fast
 * @is_of: whether the store reads a snapshot of @bs with this @id and @name, one
 *     of which may be NULL
 * @free: drop a reference; the last one frees the store
 */
typedef struct RamResetPageStore RamResetPageStore;
struct RamResetPageStore {
    char *id;
    bool (*find)(RamResetPageStore *store, const RAMBlock *rb,
                 unsigned long *pages);
    bool (*read)(RamResetPageStore *store, const RAMBlock *rb,
                 const char *name, const unsigned long *pages, uint64_t nr,
                 uint8_t *to, Error **errp);
    bool (*is_there)(const RamResetPageStore *store);
    bool (*is_of)(const RamResetPageStore *store, BlockDriverState *bs,
                  const char *id, const char *name);
    void (*free)(RamResetPageStore *store);
};

/**
 * ram_reset_page_store_free: free @store, which may be NULL
 */
static inline void ram_reset_page_store_free(RamResetPageStore *store)
{
    if (store) {
        store->free(store);
    }
}

/**
 * RamResetMakeRoom: drop a point, since all points together have reached
 * rewind-limit; false if the caller has none to drop
 */
typedef bool RamResetMakeRoom(void);

/**
 * ram_reset_take_point: record RAM, and track all writes from now on
 *
 * @loaded: RAM has just been loaded, so that devices have mapped nothing of it,
 *     or will map it again.  RAM is compared with the baseline then, as it is
 *     if there is a blocker.  Otherwise only the changes since the last point
 *     are looked at.
 * @point: the number of a point that RAM is equal to, since it has been loaded
 *     by ram_reset_copy_point(); 0 to record a new one
 * @store: a store of the snapshot; the function takes ownership.  If RAM becomes
 *     the baseline, its pages are read from there when they are needed first.
 *     NULL: they are copied
 * @make_room: called if there is no room for the pages of another point; if it
 *     drops too few, all points are dropped and RAM becomes the baseline, unless
 *     a point is pinned, also by a user
 *
 * vCPUs are stopped, I/O drained.  Call this between
 * ram_reset_complete_zeroing() and ram_reset_finish(), or outside of a reset.
 *
 * Returns: the number of the point; 0 if no object requests it, or if it is
 * impossible, which is warned of once
 */
uint64_t ram_reset_take_point(bool loaded, uint64_t point,
                              RamResetPageStore *store,
                              RamResetMakeRoom *make_room);

/**
 * ram_reset_has_point: whether the point with this number is still there; 0 is
 * none
 */
bool ram_reset_has_point(uint64_t point);

/**
 * ram_reset_own_pages: the number of pages that only this point has, which is
 * there
 */
uint64_t ram_reset_own_pages(uint64_t point);

/**
 * ram_reset_points_size: bytes of the pages in which these points differ from
 * the baseline, a page that several of them have counted once
 *
 * @numbers: of uint64_t; points that have been dropped count for nothing
 */
uint64_t ram_reset_points_size(const GArray *numbers);

/**
 * ram_reset_query_point: count the pages of a point that is there
 *
 * @info: @own_pages, @shared_pages and @differing_pages are set
 */
void ram_reset_query_point(uint64_t point, RamResetKnownSnapshot *info);

/**
 * ram_reset_drop_point: free the point with this number, if it is still there
 */
void ram_reset_drop_point(uint64_t point);

/**
 * ram_reset_pin_point: no image has the RAM of this point, so it stays whatever
 * happens until it is dropped.  RAM may be changed without the log meanwhile.
 *
 * Reads all unread pages of the baseline, so that the point needs no image.
 *
 * Returns: false with @errp set if one cannot be read
 */
bool ram_reset_pin_point(uint64_t point, Error **errp);

/**
 * ram_reset_unpin_point: an image has the RAM of this point now
 */
void ram_reset_unpin_point(uint64_t point);

/**
 * ram_reset_pin_by_user: a user wants this point to stay, or does not any more
 *
 * The point then stays when there is no room.  A blocker that says that copies
 * are of no use drops it still.  Unpinned, it is like any other.
 *
 * @pinned: whether it is pinned from now on, if it is there
 */
void ram_reset_pin_by_user(uint64_t point, bool pinned);

/**
 * ram_reset_point_block: a RAM block as it was when the point was taken
 *
 * @nr: counts the blocks from 0 on
 * @name: set to the name of the block, which lives as long as the point
 * @pages: set to its number of target pages; 0 if the snapshot excludes it
 *
 * Returns: false if the point is not there, or has no such block
 */
bool ram_reset_point_block(uint64_t point, unsigned nr, const char **name,
                           uint64_t *pages);

/**
 * ram_reset_point_page: a target page of a point that is pinned
 *
 * Returns: its content, valid until the BQL is released; NULL if it is zero
 */
const uint8_t *ram_reset_point_page(uint64_t point, unsigned block,
                                    uint64_t page);

/**
 * ram_reset_point_diff: find the pages of a block in which two points may
 * differ, which are there
 *
 * @pages: the bits of these pages are set; of ram_reset_point_block()
 */
void ram_reset_point_diff(uint64_t point, uint64_t other, unsigned block,
                          unsigned long *pages);

/**
 * ram_reset_point_count_diff: the number of such pages of all blocks
 */
uint64_t ram_reset_point_count_diff(uint64_t point, uint64_t other);

/**
 * ram_reset_point_fits: whether RAM has the blocks that it had when the point
 * was taken, so that ram_reset_copy_point() may be called
 */
bool ram_reset_point_fits(uint64_t point);

/**
 * ram_reset_point_is_whole: the same, and all pages that only the image of the
 * baseline has can be read, which this does
 */
bool ram_reset_point_is_whole(uint64_t point);

/**
 * ram_reset_copy_point: make RAM equal to a point, however it has been changed
 *
 * For a point that fits, when a blocker keeps ram_reset_rewind() from being
 * called.  As for ram_reset_begin(), but all is done at once.
 *
 * Returns: false with @errp set if the baseline cannot be read; RAM is then
 *     equal to no snapshot
 */
bool ram_reset_copy_point(uint64_t point, Error **errp);

/**
 * ram_reset_keep_log: QEMU is going to clear the dirty log for a savevm; keep
 * what the log has.  vCPUs are stopped, I/O drained.
 */
void ram_reset_keep_log(void);

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
 * ram_reset_lose_position: RAM changes, or may have been changed, without the
 * log; @why is the blocker until the next point is taken, and all points stay
 *
 * Keeps the blocker if there is one already.
 */
void ram_reset_lose_position(RamResetBlockerId why);

/**
 * ram_reset_stop_tracking: another user is going to start the dirty log, and
 * expects that it is off.  The position is lost.
 */
void ram_reset_stop_tracking(void);

/**
 * ram_reset_rewind_blocker: the reason why ram_reset_rewind() must not be
 * called
 *
 * Returns: NULL if it may be, otherwise a blocker, valid until the next call
 */
const RamResetBlocker *ram_reset_rewind_blocker(void);

/**
 * ram_reset_rewind: make RAM equal to a point that is there
 *
 * As for ram_reset_begin(), but all is done at once.
 *
 * Returns: false with @errp set if the baseline cannot be read; RAM is then
 *     equal to no snapshot, and the position is lost
 */
bool ram_reset_rewind(uint64_t point, Error **errp);

/**
 * ram_reset_map_copy: copy the current memory map, which is that of a snapshot
 *
 * Returns: an array for ram_reset_map_freeze(), owned by the caller
 */
GArray *ram_reset_map_copy(void);

/**
 * ram_reset_map_freeze: freeze the memory map if it equals @map, the map of the
 * snapshot that is going to be loaded.  It then does not change, whatever
 * devices do, until ram_reset_map_thaw().
 *
 * @map: from ram_reset_map_copy(); NULL if it is not known
 *
 * vCPUs are stopped, I/O drained, devices not yet reset.
 *
 * Returns: whether the map is frozen
 */
bool ram_reset_map_freeze(const GArray *map);

/**
 * ram_reset_map_thaw: thaw the memory map: changes by devices take effect
 */
void ram_reset_map_thaw(void);

/**
 * ram_reset_code_finish: a load is over, or ram_reset_rewind() is given up; end
 * the deferral of flushes of translated code
 *
 * @valid: translated code stays valid, except that of pages restored by
 *     ram_reset_rewind(), since nothing else has changed RAM.  Otherwise this
 *     function drops all code, if QEMU has not done so.
 * @loaded: the load has succeeded, vCPUs' states are loaded
 */
void ram_reset_code_finish(bool valid, bool loaded);

/**
 * ram_reset_query_rewind: a description of the baseline, owned by the caller;
 * NULL unless an object has rewind=on
 */
RamResetRewindInfo *ram_reset_query_rewind(void);

#endif
