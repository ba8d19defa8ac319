/*
 * The course of loads and saves, for QEMU's own files and
 * hw/misc/snapctl-command.c
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef MIGRATION_RAM_RESET_H
#define MIGRATION_RAM_RESET_H

#include "block/snapshot.h"
#include "migration/qemu-file-types.h"
#include "qapi/qapi-types-ram-reset-object.h"
#include "qapi/qapi-types-run-state.h"
#include "system/ram-reset.h"

/**
 * ram_reset_migration_is_over: whether no migration prevents a save or a load
 *
 * migration_is_running() is false as soon as a migration has failed or
 * completed, but its thread and its file may still exist.  With the BQL held.
 */
bool ram_reset_migration_is_over(void);

/**
 * ram_reset_vm_is_whole: whether the VM may run, be saved or migrated
 *
 * A load that fails after it has begun to change disks or RAM leaves the VM
 * with a partial load, until another load succeeds or the VM is reset.  With
 * the BQL held.
 *
 * Returns: false with @errp set if the VM has a partial load
 */
bool ram_reset_vm_is_whole(Error **errp);

/**
 * ram_reset_set_error_of_cont: set @errp to the reason why the VM needs a reset
 */
void ram_reset_set_error_of_cont(Error **errp);

/**
 * ram_reset_may_migrate: whether the VM may begin a migration
 *
 * With the BQL held.
 *
 * Returns: false with @errp set if the VM has a partial load, or a run state
 *     without a transition to a migration
 */
bool ram_reset_may_migrate(Error **errp);

/**
 * ram_reset_job_context: the context for the bottom halves of snapshot jobs
 *
 * Only the main loop runs a bottom half of this context, in a turn of its own.
 * A nested poll for I/O would run a bottom half of the main context, too:
 * during a save, a load, a device's reset, or a vCPU's access to a device.
 *
 * Returns: a borrowed reference
 */
AioContext *ram_reset_job_context(void);

/**
 * ram_reset_vcpus_stop: stop the VM as vm_stop() does, but do not wake up a
 * vCPU that is the only one, and has stopped for ram_reset_vcpu_stop_current()
 */
void ram_reset_vcpus_stop(RunState state);

/**
 * ram_reset_vcpu_stop_current: stop this vCPU as cpu_stop_current() does, then
 * call @function
 *
 * Calls @function at once outside vCPU threads, and never if the vCPU is
 * unplugged before it has stopped.
 */
void ram_reset_vcpu_stop_current(void (*function)(void *opaque), void *opaque);

/*
 * load_snapshot() calls these functions in this order, with the BQL held, for
 * all loads.  Without a ram-reset object, they do little but to record times.
 */

/**
 * ram_reset_all_have: bdrv_all_has_snapshot() that knows inherited snapshots,
 * and refuses a load while a migration is running
 */
int ram_reset_all_have(const char *name, bool has_devices, strList *devices,
                       Error **errp);

/**
 * ram_reset_find_snapshot: bdrv_snapshot_find() that knows inherited snapshots
 */
int ram_reset_find_snapshot(BlockDriverState *bs, QEMUSnapshotInfo *sn,
                            const char *name);

/**
 * ram_reset_has_vmstate: whether a snapshot of @bs with the name of @sn has a VM
 * state, in the image, in its backing file, or in the memory of this QEMU
 */
bool ram_reset_has_vmstate(BlockDriverState *bs, const QEMUSnapshotInfo *sn);

/**
 * ram_reset_load_prepare: check that a load may begin
 *
 * @bs: the disk with the VM state
 * @sn: a snapshot of @bs with the requested name; set to the snapshot to load,
 *     if @bs has several
 * @devices: the nodes that the user has named, if @has_devices
 *
 * Refuses the load if the disks have no snapshots that were made together, a
 * disk cannot be reverted, or a device cannot be migrated.  With a ram-reset
 * object, also refuses it during a migration, with postcopy or COLO, or if the
 * snapshot is of another machine or RAM layout.
 *
 * Returns: false with @errp set if the load is refused; nothing has been
 *     changed then
 */
bool ram_reset_load_prepare(BlockDriverState *bs, QEMUSnapshotInfo *sn,
                            bool has_devices, strList *devices, Error **errp);

/**
 * ram_reset_load_revert: revert each disk to its snapshot, with I/O drained
 *
 * Returns: 0, or -1 with @errp set
 */
int ram_reset_load_revert(Error **errp);

/**
 * ram_reset_open_vmstate: open a VM state for reading or writing
 *
 * @bs: for writing, the image with the VM state; it is read from that of the
 *     prepared load, after disks have been reverted
 *
 * Returns: a file; the caller closes it with qemu_fclose()
 */
QEMUFile *ram_reset_open_vmstate(BlockDriverState *bs, bool write);

/**
 * ram_reset_load_reverted: prepare the system reset, after disks have been
 * reverted
 */
void ram_reset_load_reverted(void);

/**
 * ram_reset_load_begin: clear or restore RAM, after the system reset
 */
void ram_reset_load_begin(void);

void ram_reset_do_load_page(RAMBlock *rb, ram_addr_t offset, int flags);

/**
 * ram_reset_load_page: QEMU is about to load a page record
 *
 * @rb: the RAM block
 * @offset: the position of the page in @rb, in bytes
 * @flags: the RAM_SAVE_FLAG_* of the record
 */
static inline void ram_reset_load_page(RAMBlock *rb, ram_addr_t offset,
                                       int flags)
{
    if (unlikely(ram_reset_flags.running)) {
        ram_reset_do_load_page(rb, offset, flags);
    }
}

void ram_reset_do_load_zeros(QEMUFile *f, ram_addr_t addr);

/**
 * ram_reset_load_zeros: load a run of zero records at once
 *
 * @f: the stream, just behind a zero record
 * @addr: the address in that record
 *
 * Consumes the next records while each is for the next page of the same RAM
 * block, and that page is known to be zero.
 */
static inline void ram_reset_load_zeros(QEMUFile *f, ram_addr_t addr)
{
    if (unlikely(ram_reset_flags.running)) {
        ram_reset_do_load_zeros(f, addr);
    }
}

/**
 * ram_reset_load_skip: skip all RAM sections if RAM is restored already
 *
 * @f: the stream, at the content of a RAM section
 *
 * Returns: true if RAM has been skipped; the stream is at the footer of the
 *     last RAM section then
 */
bool ram_reset_load_skip(QEMUFile *f);

/**
 * ram_reset_map_incoming: map a block from the file of a migration that comes in
 *
 * @len: bytes of the block in the file, from @rb->pages_offset on
 * @stored: a bit for each target page that the file has
 *
 * Called for each block of a stream with mapped-ram, with the BQL held.  RAM is
 * zero before.
 *
 * Returns: false if the pages must be read; query-ram-reset reports why
 */
bool ram_reset_map_incoming(QEMUFile *f, RAMBlock *rb, ram_addr_t len,
                            const unsigned long *stored);

/**
 * ram_reset_load_section: QEMU is about to load a further part of a section
 *
 * @type: QEMU_VM_SECTION_PART or QEMU_VM_SECTION_END
 */
void ram_reset_load_section(uint8_t type);

/**
 * ram_reset_load_ram_done: a RAM section has been loaded
 *
 * @ret: the result of its load, 0 or -errno
 *
 * After the last section, and before all later devices, completes pending
 * zeroing, takes a baseline or makes a template, and verifies RAM with
 * verify=on.
 */
void ram_reset_load_ram_done(int ret);

/**
 * ram_reset_load_end: the load has ended, or has failed
 *
 * @ret: the result of the load of the VM state, 0 or -errno
 * @errp: set only if @ret is not negative
 *
 * If the load has failed, or this function fails, leaves the VM with a partial
 * load, unless no disk has been changed yet.  Does nothing outside a load.
 *
 * Returns: false with @errp set if the VM state had no end of RAM, or, with
 *     verify=on, if RAM or a device differs from the snapshot
 */
bool ram_reset_load_end(int ret, Error **errp);

/*
 * save_snapshot() calls these functions, with the BQL held.  @devices are the
 * nodes that the user has named, if @has_devices.
 */

/**
 * ram_reset_do_save: QEMU's own save_snapshot(), called by ours with vCPUs
 * paused and a reference to each disk that takes part
 */
bool ram_reset_do_save(const char *name, bool overwrite, const char *vmstate,
                       bool has_devices, strList *devices, Error **errp);

/**
 * ram_reset_kind_of_save: @kind if @has_kind, otherwise the property save-kind of
 * the objects
 */
RamResetSaveKind ram_reset_kind_of_save(bool has_kind, RamResetSaveKind kind);

/**
 * ram_reset_save_as: let the next save_snapshot() use @kind in place of the
 * property save-kind of the objects
 *
 * Call this in the same turn of the main loop, with the BQL held.
 */
void ram_reset_save_as(RamResetSaveKind kind);

/**
 * ram_reset_save_within: let the next save_snapshot() fail if it is in memory,
 * and snapshots of these names would have more than @limit bytes there after it
 *
 * @tags: ends with NULL; must stay until the save has ended
 * @limit: 0 for no limit
 *
 * As ram_reset_save_as().
 */
void ram_reset_save_within(const char *const *tags, uint64_t limit);

/**
 * ram_reset_save_hit_limit: whether the last save has failed because of
 * ram_reset_save_within()
 */
bool ram_reset_save_hit_limit(void);

/**
 * ram_reset_memory_size: bytes that snapshots of these names have in memory
 *
 * @tags: ends with NULL
 *
 * Counts only snapshots that are in memory only: the VM states, and the pages
 * in which their RAM differs from the baseline.  A page that several of them
 * have counts once.  With the BQL held.
 */
uint64_t ram_reset_memory_size(const char *const *tags);

/**
 * ram_reset_save_prepare: a save begins
 *
 * Returns: false with @errp set if the VM has a partial load, or a disk cannot
 *     have snapshots
 */
bool ram_reset_save_prepare(bool has_devices, strList *devices, Error **errp);

/**
 * ram_reset_save_overwrites: let the save overwrite the snapshots @name
 *
 * ram_reset_save_end() deletes the old snapshots.  If a disk cannot have two
 * snapshots with one name, this function deletes them.
 *
 * Returns: false with @errp set if a deletion fails
 */
bool ram_reset_save_overwrites(const char *name, bool has_devices,
                               strList *devices, Error **errp);

/**
 * ram_reset_save_undo: delete the new snapshots @name of this save, but not the
 * old ones
 */
void ram_reset_save_undo(const char *name, bool has_devices, strList *devices);

/**
 * ram_reset_save_sync: a migration or savevm is about to fetch its dirty bits
 *
 * Any thread may call this, without the BQL.
 */
void ram_reset_save_sync(void);

bool ram_reset_do_save_zero(const void *page);

/**
 * ram_reset_saves_no_ram: whether this is a save whose RAM stays in memory
 *
 * Called in any thread that saves RAM.
 */
bool ram_reset_saves_no_ram(void);

/**
 * ram_reset_save_size: the size of the VM state in the image, of @size bytes
 * that have been written; 0 if they are in memory
 */
uint64_t ram_reset_save_size(uint64_t size);

/**
 * ram_reset_save_zero: whether the target page at @page is known to be zero
 *
 * Any thread may call this, without the BQL.
 */
static inline bool ram_reset_save_zero(const void *page)
{
    return unlikely(qatomic_read(&ram_reset_flags.saving)) &&
           ram_reset_do_save_zero(page);
}

void ram_reset_do_save_page(QEMUFile *f, const RAMBlock *rb, ram_addr_t offset);

/**
 * ram_reset_save_page: the page of @rb at @offset is about to be written to @f,
 * behind the head of its record
 *
 * Any thread may call this, without the BQL.
 */
static inline void ram_reset_save_page(QEMUFile *f, const RAMBlock *rb,
                                       ram_addr_t offset)
{
    if (unlikely(qatomic_read(&ram_reset_flags.saving))) {
        ram_reset_do_save_page(f, rb, offset);
    }
}

/**
 * ram_reset_save_ram_done: all of RAM has been written to @f, except the mark
 * at the end of the last section
 */
void ram_reset_save_ram_done(QEMUFile *f);

/**
 * ram_reset_save_end: the save has ended; vCPUs are still paused
 *
 * @ret: 0 if all disks have the new snapshot @name; else -errno, with @errp set
 * @bs: the disk with the VM state
 *
 * Deletes the old snapshots @name.  After a failure, frees the written VM
 * state.
 *
 * Returns: @ret, or -errno with @errp set if an old snapshot cannot be deleted,
 *     or @bs has been removed; the new snapshot has been deleted then
 */
int ram_reset_save_end(int ret, BlockDriverState *bs, const char *name,
                       bool has_devices, strList *devices, Error **errp);

/**
 * ram_reset_delete: delete all snapshots @name of each disk
 *
 * In place of bdrv_all_delete_snapshot(), which deletes one in each disk.
 * Deletes the templates, too, and what is in memory of snapshots that are gone.
 *
 * Returns: 0, or a negative number with @errp set if a snapshot cannot be
 *     deleted
 */
int ram_reset_delete(const char *name, bool has_devices, strList *devices,
                     Error **errp);

#endif
