/*
 * RAM reset in the course of loading and saving snapshots
 *
 * What QEMU's own files call, and hw/misc/snapctl-command.c.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef MIGRATION_RAM_RESET_H
#define MIGRATION_RAM_RESET_H

#include "block/snapshot.h"
#include "migration/qemu-file-types.h"
#include "qapi/qapi-types-run-state.h"
#include "system/ram-reset.h"

/**
 * ram_reset_migration_is_over: whether migration allows to save or load a
 * snapshot.  With the BQL held.
 *
 * migration_is_running() is false as soon as a migration has failed or
 * completed, while its thread and its file may still be there.
 */
bool ram_reset_migration_is_over(void);

/**
 * ram_reset_vm_is_whole: whether the VM may run, be saved or migrated
 *
 * It may not when a load has failed that had begun to change disks or RAM,
 * until another load succeeds or the VM is reset.  With the BQL held.
 *
 * Returns: false with @errp set in that case
 */
bool ram_reset_vm_is_whole(Error **errp);

/**
 * ram_reset_set_error_of_cont: set @errp to why runstate_needs_reset()
 */
void ram_reset_set_error_of_cont(Error **errp);

/**
 * ram_reset_may_migrate: whether the VM is whole, and in a run state that it
 * can leave for a migration
 *
 * Returns: false with @errp set if it is not
 */
bool ram_reset_may_migrate(Error **errp);

/**
 * ram_reset_job_context: where snapshot jobs schedule the bottom half that does
 * their work
 *
 * Only the main loop runs it, in a turn of its own.  Whoever polls for I/O
 * would run a bottom half of the main context, too: in the midst of a save, a
 * load, a device's reset, or a vCPU's access to a device.
 *
 * Returns: a borrowed reference
 */
AioContext *ram_reset_job_context(void);

/**
 * ram_reset_vcpus_stop: as vm_stop(), without waking up a vCPU that is the only
 * one, and has stopped for ram_reset_vcpu_stop_current()
 */
void ram_reset_vcpus_stop(RunState state);

/**
 * ram_reset_vcpu_stop_current: as cpu_stop_current(), and then call @function
 *
 * It is called at once if this is no vCPU's thread, and never if the vCPU is
 * unplugged before it has stopped.
 */
void ram_reset_vcpu_stop_current(void (*function)(void *opaque), void *opaque);

/*
 * What load_snapshot() calls, in this order, with the BQL held.  Whatever
 * way a load is asked for (HMP loadvm, QMP snapshot-load, -loadvm), it comes
 * through here.  Without a ram-reset object little more than times are taken.
 */

/**
 * ram_reset_load_prepare: check that a load may begin
 *
 * @bs: where the VM state is
 * @sn: a snapshot in @bs of the name that is wanted; becomes the one to load,
 *     if @bs has several
 * @devices: the nodes that the load was asked for, if @has_devices
 *
 * Returns: false with @errp set if the load is refused: the disks have no
 * snapshots that were made together, one cannot be reverted, or a device cannot
 * be migrated; or, with a ram-reset object, a migration is under way, postcopy
 * or COLO is set up, or the snapshot is one of another machine or RAM layout.
 * Nothing has been changed then.
 */
bool ram_reset_load_prepare(BlockDriverState *bs, QEMUSnapshotInfo *sn,
                            bool has_devices, strList *devices, Error **errp);

/**
 * ram_reset_load_revert: revert each disk to its snapshot; I/O is drained
 *
 * Returns: 0, or -1 with @errp set
 */
int ram_reset_load_revert(Error **errp);

/**
 * ram_reset_open_vmstate: the file that a VM state is read from, or written to
 *
 * @bs: where the VM state is; when it is read, that of the load that has been
 *     prepared, and disks have been reverted
 *
 * Returns: a file, to be closed by the caller
 */
QEMUFile *ram_reset_open_vmstate(BlockDriverState *bs, bool write);

/**
 * ram_reset_load_reverted: disks have been reverted; system reset comes next
 */
void ram_reset_load_reverted(void);

/**
 * ram_reset_load_begin: make RAM zero, or what the snapshot has; the system
 * reset is over
 */
void ram_reset_load_begin(void);

void ram_reset_do_load_page(RAMBlock *rb, ram_addr_t offset, int flags);

/**
 * ram_reset_load_page: a page record is going to be loaded
 *
 * @rb: the RAM block
 * @offset: of the page in it, in bytes
 * @flags: the record's RAM_SAVE_FLAG_*
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
 * Consumes the records that follow for as long as each is for the next page of
 * the same RAM block, and that page is known to be zero.
 */
static inline void ram_reset_load_zeros(QEMUFile *f, ram_addr_t addr)
{
    if (unlikely(ram_reset_flags.running)) {
        ram_reset_do_load_zeros(f, addr);
    }
}

/**
 * ram_reset_load_skip: skip RAM's sections if RAM is what the snapshot has
 *
 * @f: the stream, at the content of a section of RAM
 *
 * Returns: true if it has; the stream is at the footer of RAM's last section
 * then
 */
bool ram_reset_load_skip(QEMUFile *f);

/**
 * ram_reset_load_section: QEMU is going to load one more section of something
 *
 * @type: QEMU_VM_SECTION_PART or QEMU_VM_SECTION_END
 */
void ram_reset_load_section(uint8_t type);

/**
 * ram_reset_load_ram_done: a section of RAM has been loaded
 *
 * @ret: what loading it gave, 0 or -errno
 *
 * After the last one, and before any device that comes later, this completes
 * pending zeroing, and verifies RAM if an object asks for that.
 */
void ram_reset_load_ram_done(int ret);

/**
 * ram_reset_load_end: the load is over, or is given up
 *
 * @ret: what loading the VM state gave, 0 or -errno
 * @errp: set only if @ret is not negative
 *
 * Returns: false with @errp set if RAM is not what the snapshot has, see
 * verify=on.  The VM is not whole then, nor if @ret is not 0, unless no disk has
 * been changed yet.  Does nothing if no load is under way.
 */
bool ram_reset_load_end(int ret, Error **errp);

/*
 * What save_snapshot() calls, with the BQL held.  @devices are the nodes that
 * it was asked for, if @has_devices.
 */

/**
 * ram_reset_do_save: QEMU's own save_snapshot(); ours calls it
 *
 * vCPUs are paused, and all disks that take part are referenced.
 */
bool ram_reset_do_save(const char *name, bool overwrite, const char *vmstate,
                       bool has_devices, strList *devices, Error **errp);

/**
 * ram_reset_save_prepare: a save begins
 *
 * Returns: false with @errp set if it cannot: see ram_reset_vm_is_whole(), or a
 *     disk can have no snapshot
 */
bool ram_reset_save_prepare(bool has_devices, strList *devices, Error **errp);

/**
 * ram_reset_save_replaces: the save may replace the snapshots @name
 *
 * ram_reset_save_end() deletes them, or this function does if the disks cannot
 * have two of a name.
 *
 * Returns: false with @errp set if they cannot be deleted
 */
bool ram_reset_save_replaces(const char *name, bool has_devices,
                             strList *devices, Error **errp);

/**
 * ram_reset_save_undo: delete what the save has made of the snapshot @name, but
 * not what it was to replace
 */
void ram_reset_save_undo(const char *name, bool has_devices, strList *devices);

/**
 * ram_reset_save_sync: a migration, or savevm, takes the bits that the dirty
 * log has for it.  Any thread; the BQL need not be held.
 */
void ram_reset_save_sync(void);

bool ram_reset_do_save_zero(const void *page);

/**
 * ram_reset_save_zero: whether the target page at @page need not be read to
 * know that it is zero
 */
static inline bool ram_reset_save_zero(const void *page)
{
    return unlikely(qatomic_read(&ram_reset_flags.saving)) &&
           ram_reset_do_save_zero(page);
}

/**
 * ram_reset_save_ram_done: all of RAM has been written to @f, but for the mark
 * at the end of its section
 */
void ram_reset_save_ram_done(QEMUFile *f);

/**
 * ram_reset_save_end: the save is over, vCPUs do not run yet
 *
 * @ret: 0 if the snapshot @name has been made in all disks, -errno if not, with
 *     @errp set
 * @bs: the disk where the VM state was written
 *
 * Deletes the snapshots that the new one replaces.  After a failure, frees the
 * part of the VM state that has been written.
 *
 * Returns: @ret, or -errno with @errp set if the older snapshots cannot be
 *     deleted or @bs has been removed: the new one has been deleted then
 */
int ram_reset_save_end(int ret, BlockDriverState *bs, const char *name,
                       bool has_devices, strList *devices, Error **errp);

/**
 * ram_reset_delete_prepare: delete_snapshot() is going to delete the snapshot
 * @name of each disk
 *
 * Deletes the templates, and all but one of the snapshots if a disk has several
 * of the name.
 *
 * Returns: false with @errp set if one cannot be deleted
 */
bool ram_reset_delete_prepare(const char *name, bool has_devices,
                              strList *devices, Error **errp);

#endif
