/*
 * RAM reset in the course of loading a snapshot
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef MIGRATION_RAM_RESET_H
#define MIGRATION_RAM_RESET_H

#include "block/snapshot.h"
#include "migration/qemu-file-types.h"
#include "qapi/qapi-types-ram-reset.h"
#include "system/ram-reset.h"

/**
 * ram_reset_migration_is_over: whether a snapshot can be saved or loaded as far
 * as migration is concerned.  With the BQL held.
 *
 * migration_is_running() is false as soon as one has failed or completed, while
 * its thread and its file may still be there.
 */
bool ram_reset_migration_is_over(void);

/**
 * ram_reset_vm_is_whole: whether the VM may run, be saved or migrated
 *
 * It may not when a load has failed that had begun to change disks or RAM,
 * until another one succeeds or the VM is reset.  With the BQL held.
 *
 * Returns: false with @errp set in that case
 */
bool ram_reset_vm_is_whole(Error **errp);

/**
 * ram_reset_may_migrate: the same, and whether its run state is one that can
 * be left for a migration
 */
bool ram_reset_may_migrate(Error **errp);

/**
 * ram_reset_job_context: where snapshot jobs have the bottom half that does
 * their work
 *
 * Only the main loop runs it, in a turn of its own.  One of the main context
 * would also be run by whoever polls for I/O: in the midst of a save, a load, a
 * device's reset, or a vCPU's access to it.
 *
 * Returns: a borrowed reference
 */
AioContext *ram_reset_job_context(void);

/*
 * What load_snapshot() calls, in this order, with the BQL held.  Whatever
 * way a load is asked for (HMP loadvm, QMP snapshot-load, -loadvm), it comes
 * through here.  Without a ram-reset object little more than times are taken.
 */

/**
 * ram_reset_load_prepare: check that a load may begin
 *
 * @bs: where the VM state is
 * @sn: the snapshot in @bs
 *
 * Returns: false with @errp set if the load is refused: a device cannot be
 * migrated; or, with a ram-reset object, a migration is under way, postcopy or
 * COLO is set up, or the snapshot is one of another machine or RAM layout.
 * Nothing has been changed then.
 */
bool ram_reset_load_prepare(BlockDriverState *bs, const QEMUSnapshotInfo *sn,
                            Error **errp);

/**
 * ram_reset_load_reverted: disks are the snapshot's; system reset comes next
 */
void ram_reset_load_reverted(void);

/**
 * ram_reset_load_begin: make RAM zero; the system reset is over
 *
 * @bs: where the VM state is
 */
void ram_reset_load_begin(BlockDriverState *bs);

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
    if (unlikely(ram_reset_running)) {
        ram_reset_do_load_page(rb, offset, flags);
    }
}

void ram_reset_do_load_zeros(QEMUFile *f, ram_addr_t addr);

/**
 * ram_reset_load_zeros: do a run of zero records in one go
 *
 * @f: the stream, just behind a zero record
 * @addr: the address in that record
 *
 * Takes in the records that follow for as long as each is for the next page
 * of the same RAM block, and that page is known to be zero.
 */
static inline void ram_reset_load_zeros(QEMUFile *f, ram_addr_t addr)
{
    if (unlikely(ram_reset_running)) {
        ram_reset_do_load_zeros(f, addr);
    }
}

/**
 * ram_reset_load_rewound: RAM is what the snapshot has already
 *
 * @f: the stream, at the content of a section of RAM
 *
 * Returns: true if that is so; the stream is at the footer of RAM's last
 * section then
 */
bool ram_reset_load_rewound(QEMUFile *f);

/**
 * ram_reset_load_section: a section that goes on with something is next
 *
 * @type: QEMU_VM_SECTION_PART or QEMU_VM_SECTION_END
 */
void ram_reset_load_section(uint8_t type);

/**
 * ram_reset_load_ram_done: a section of RAM has been loaded
 *
 * @ret: what loading it gave, 0 or -errno
 *
 * Behind the last one, and before any device that comes later, this verifies
 * RAM if an object asks for that.
 */
void ram_reset_load_ram_done(int ret);

/**
 * ram_reset_load_end: the load is over, or is given up
 *
 * @ret: what loading the VM state gave, 0 or -errno
 * @errp: set only if @ret is not negative
 *
 * Returns: false with @errp set if RAM is not what the snapshot has, see
 * verify=on.  The VM is not whole then, nor if @ret is not 0.  Does nothing if
 * the load has already ended.
 */
bool ram_reset_load_end(int ret, Error **errp);

/*
 * What save_snapshot() calls, with the BQL held.  @devices are the nodes that
 * it was asked for, if @has_devices.
 */

/**
 * ram_reset_save_prepare: a save begins; see ram_reset_vm_is_whole()
 */
bool ram_reset_save_prepare(Error **errp);

/**
 * ram_reset_save_replaces: the snapshots @name may be replaced
 *
 * They are deleted by ram_reset_saved(), or now if the disks cannot have two
 * of a name.
 *
 * Returns: false with @errp set if that fails
 */
bool ram_reset_save_replaces(const char *name, bool has_devices,
                             strList *devices, Error **errp);

/**
 * ram_reset_save_undo: delete what has been made of the snapshot @name, and not
 * what it was to replace
 */
void ram_reset_save_undo(const char *name, bool has_devices, strList *devices);

/**
 * ram_reset_save_sync: a migration, or savevm, takes the bits that the dirty
 * log has for it.  Any thread, other than what is said above.
 */
void ram_reset_save_sync(void);

/* True while RAM is saved and nobody writes to it */
extern bool ram_reset_saving;

bool ram_reset_do_save_zero(const void *page);

/**
 * ram_reset_save_zero: whether the target page at @page need not be read to
 * know that it is zero
 */
static inline bool ram_reset_save_zero(const void *page)
{
    return unlikely(qatomic_read(&ram_reset_saving)) &&
           ram_reset_do_save_zero(page);
}

/**
 * ram_reset_save_ram_done: all of RAM has been written to @f, other than the
 * mark at the end of its section
 */
void ram_reset_save_ram_done(QEMUFile *f);

/**
 * ram_reset_saved: the snapshot @name has been made, its VM state is in @bs
 *
 * RAM is what it was then, vCPUs have not run since.  Deletes what it replaces.
 *
 * Returns: 0, or -errno with @errp set if that fails: the new one has been
 *     deleted then
 */
int ram_reset_saved(BlockDriverState *bs, const char *name, bool has_devices,
                    strList *devices, Error **errp);

/**
 * ram_reset_delete_prepare: the snapshots @name are going to be deleted
 *
 * What delete_snapshot() calls.  Their templates go with them.
 */
void ram_reset_delete_prepare(const char *name, bool has_devices,
                              strList *devices);

/**
 * ram_reset_query_loads: fill in all about loads; @info is zeroed memory
 */
void ram_reset_query_loads(RamResetInfo *info);

#endif
