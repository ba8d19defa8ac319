/*
 * RAM reset: the contract of a strategy
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef SYSTEM_RAM_RESET_OBJECT_H
#define SYSTEM_RAM_RESET_OBJECT_H

#include "qapi/qapi-builtin-types.h"
#include "qapi/qapi-types-ram-reset.h"
#include "qemu/notify.h"
#include "qom/object.h"

/*
 * The QOM type of a ram-reset object is its strategy for making RAM blocks
 * zero.
 */

#define TYPE_RAM_RESET "ram-reset"
OBJECT_DECLARE_TYPE(RamReset, RamResetClass, RAM_RESET)

#define TYPE_RAM_RESET_AUTO    "ram-reset-auto"
#define TYPE_RAM_RESET_MEMSET  "ram-reset-memset"
#define TYPE_RAM_RESET_MADVISE "ram-reset-madvise"
#define TYPE_RAM_RESET_REMAP   "ram-reset-remap"
#define TYPE_RAM_RESET_HUGEFILE "ram-reset-hugefile"

typedef struct RamResetBlock RamResetBlock;

/**
 * RamResetClass: one strategy
 *
 * All methods are called with the BQL held.  @supports and @zero get the object
 * that covers @blk as @rr, which may be of another class: a strategy may
 * delegate to others, as ram-reset-auto does.  So they only use members of
 * RamReset; a strategy that needs an object of its own class checks for that in
 * @supports.  All other methods get an object of this class.
 *
 * @supports: Whether this strategy can make @blk zero.  Called by
 *     ram_reset_begin() at every load, since the result may change (memory
 *     pinned by a new device, a file written to).  Must change nothing.
 *     False with @errp set to the reason, a sentence for query-ram-reset;
 *     the block is then cleared in place.
 *
 * @late: The strategy does not discard pages, so that pages which the snapshot
 *     overwrites need not be zero before.  @zero is then called when RAM has
 *     been loaded, and skips all pages that are not in @blk->known any more.
 *     If the caller does not notify us of all pages, or nothing can be known,
 *     @zero is called before the load all the same.
 *
 * @discards: @zero takes any range of pages, and leaves them without memory.
 *
 * @locks_file: The object locks a block's file, so that nobody else uses it.
 *
 * @zero: Make [@start, @start + @len) of @blk zero and add the work done to
 *     @blk->info's counters.  @start and @len are multiples of the block's
 *     page size, except that the range may end at its used_length.
 *     Called only for blocks that @supports accepted, and then once a load,
 *     or for some parts of them.
 *     0, or -errno: the range is then cleared in place.
 *
 * @plan: For strategies that delegate to others: fill in @blk->parts, and
 *     the strategy and reason in @blk->info.  Called after @supports, at every
 *     load.  May be NULL; then @zero must not be.
 *
 * @loaded: A snapshot has been loaded, and @blk is the result of @plan and the
 *     load.  May be NULL.
 *
 * @check: Whether @rr's properties are consistent; called when the object is
 *     made, and when the machine is.  May be NULL.
 *
 * @machine_ready: The machine has been made, with its initial RAM.  May be
 *     NULL.
 *
 * @memdev_comes_later: The memory backend must be made after the object.
 *
 * @query: Add the members of this class to @info.  May be NULL.
 */
struct RamResetClass {
    ObjectClass parent_class;

    bool late, discards, locks_file, memdev_comes_later;
    bool (*check)(RamReset *rr, Error **errp);
    void (*machine_ready)(RamReset *rr);
    void (*query)(RamReset *rr, RamResetObjectInfo *info);
    bool (*supports)(RamReset *rr, const RamResetBlock *blk, Error **errp);
    void (*plan)(RamReset *rr, RamResetBlock *blk);
    int (*zero)(RamReset *rr, RamResetBlock *blk, uint64_t start, uint64_t len);
    void (*loaded)(RamReset *rr, const RamResetBlock *blk);
};

/**
 * RamReset: an instance, made by -object or object-add
 *
 * @memdev: id of the one memory backend to reset; NULL for every block that
 *     no other object covers by name
 * @verify: compare RAM with the snapshot after each load
 * @rewind: copy the RAM of the snapshot, to undo only the changes
 * @rewind_limit: largest size of that copy for all blocks in bytes; 0: no limit
 * @template_dir: path of the directory for templates; NULL for none
 * @template_fd: that directory; -1 if there is none
 * @template_limit: size that all templates there may have in bytes; 0: half of
 *     the file system
 * @new_vmgenid: give the VM a new generation ID with each load
 * @save_kind: the place for the RAM and the devices of new snapshots
 * @load_unchanged: load also devices that are as the snapshot has them
 * @threads: for clearing in place; 0: one per host CPU, at most 8
 * @keep_disks: names of disks that snapshots exclude
 * @completed: memdev has been checked and cannot be set any more
 * @warned: a failure of the strategy has been reported
 * @machine_done: calls @machine_ready of the class
 */
struct RamReset {
    Object parent;

    char *memdev;
    bool verify, rewind;
    uint64_t rewind_limit;
    char *template_dir;
    int template_fd;
    uint64_t template_limit;
    bool new_vmgenid, load_unchanged;
    RamResetSaveKind save_kind;
    uint32_t threads;
    strList *keep_disks;
    bool completed, warned;
    Notifier machine_done;
};

#endif
