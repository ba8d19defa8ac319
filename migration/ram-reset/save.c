/*
 * The course of a save
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qapi/error.h"
#include "qemu/main-loop.h"
#include "block/block.h"
#include "system/cpus.h"
#include "system/ram-reset-compat.h"
#include "system/ram-reset-load.h"
#include "system/ram-reset-rewind.h"
#include "system/ram-reset-template.h"
#include "system/replay.h"
#include "system/runstate.h"
#include "migration/channel-block.h"
#include "migration/misc.h"
#include "migration/ram-reset.h"
#include "migration/snapshot.h"
#include "migration/migration.h"
#include "migration/migration-stats.h"
#include "migration/options.h"
#include "migration/qemu-file.h"
#include "migration/ram-reset/baseline.h"
#include "migration/ram-reset/disk-snapshots.h"
#include "migration/ram-reset/memory-size.h"
#include "migration/ram-reset/overwrite.h"
#include "migration/ram-reset/page-store.h"
#include "migration/ram-reset/qcow2.h"
#include "migration/ram-reset/removed-ram.h"
#include "migration/ram-reset/save.h"
#include "migration/ram-reset/snapshot.h"
#include "migration/ram-reset/verify/digest.h"
#include "migration/ram-reset/vmstate/format.h"
#include "migration/ram-reset/vmstate/mapped-ram.h"
#include "migration/ram-reset/vmstate/memory.h"
#include "migration/ram-reset/vmstate/page-places.h"

/* The wishes of a caller; BQL */
typedef struct SaveRequest {
    bool has_kind;
    RamResetSaveKind kind;
    const char *const *tags;    /* that together may have ... */
    uint64_t limit;             /* ... bytes in memory; 0: any number */
} SaveRequest;

static struct {
    SaveRequest next;           /* of the next save_snapshot(); BQL */
    SaveRequest request;        /* of the current one; BQL */
    bool hit_limit;             /* why the last save has failed; BQL */
    /* The saving thread; written before ram_reset_flags.saving is set */
    QemuThread thread;
    /* Position of the last RAM footer in the last VM state, in bytes; BQL */
    int64_t ram_end;
    bool writing;               /* the VM state is being written; BQL */
    bool in_memory;             /* ... to memory, and RAM stays there; BQL */
    GByteArray *vmstate;        /* if so, the VM state; BQL */
    uint64_t point;             /* and the point with RAM; 0: none yet; BQL */
    int64_t file_length;        /* of the image before that, in bytes; BQL */
    PagePlaces *places;         /* in the VM state; NULL: not noted; BQL */
    BlockDriverState *bs;       /* that has it; BQL */
    RamResetPageStore *store;   /* of its pages; NULL: there is none; BQL */
} save;

/* HMP's savevm includes all disks; the hint says how to exclude a disk */
static bool check_disks(bool has_devices, strList *devices, Error **errp)
{
    ERRP_GUARD();

    if (bdrv_all_can_snapshot(has_devices, devices, errp)) {
        return true;
    }
    if (!has_devices && ram_reset_enabled()) {
        error_append_hint(errp, "Convert it to qcow2, make it read-only, or, "
                          "if a load need not revert it, name it with "
                          "keep-disks= of the ram-reset object.\n");
    }
    return false;
}

RamResetSaveKind ram_reset_kind_of_save(bool has_kind, RamResetSaveKind kind)
{
    return has_kind ? kind : ram_reset_save_kind();
}

void ram_reset_save_as(RamResetSaveKind kind)
{
    save.next.has_kind = true;
    save.next.kind = kind;
}

void ram_reset_save_within(const char *const *tags, uint64_t limit)
{
    save.next.tags = tags;
    save.next.limit = limit;
}

bool ram_reset_save_hit_limit(void)
{
    return save.hit_limit;
}

bool ram_reset_save_prepare(bool has_devices, strList *devices, Error **errp)
{
    const char *blocker = ram_reset_mapped_ram_blocker();

    if (blocker && ram_reset_enabled()) {
        error_setg(errp, "No snapshot can be saved: %s", blocker);
        return false;
    }
    save.in_memory = ram_reset_kind_of_save(save.request.has_kind,
                                            save.request.kind) ==
                     RAM_RESET_SAVE_KIND_MEMORY;
    if (save.in_memory && !ram_reset_rewind_wanted()) {
        error_setg(errp, "save-kind=memory needs an object with rewind=on");
        return false;
    }
    if (save.in_memory && (migrate_mapped_ram() || migrate_multifd() ||
                           replay_mode != REPLAY_MODE_NONE)) {
        error_setg(errp, "save-kind=memory cannot be used with record/replay, "
                   "or with migration capability 'mapped-ram' or 'multifd'");
        return false;
    }
    return ram_reset_vm_is_whole(errp) &&
           check_disks(has_devices, devices, errp);
}

static bool is_savevm(void)
{
    return qemu_get_thread_id() == getpid() &&
           !migrate_get_current()->migration_thread_running;
}

/*
 * Only savevm saves RAM in the main thread.  A timer of a migration with
 * auto-converge calls this there, too.  savevm has stopped vCPUs before, so RAM
 * does not change until all of it is saved.
 */
void ram_reset_save_sync(void)
{
    bool savevm = is_savevm();

    if (savevm && ram_reset_rewind_wanted()) {
        ram_reset_keep_log();
    } else {
        qatomic_set(&ram_reset_flags.dirty_bits_taken, true);
    }
    if (savevm) {
        assert(bql_locked() && !runstate_is_running());
        qemu_thread_get_self(&save.thread);
        if (!save.in_memory) {
            ram_reset_unpopulated_begin();
        }
    }
    qatomic_set(&ram_reset_flags.saving, savevm);
}

/*
 * A failed savevm leaves ram_reset_flags.saving set, and a migration in another
 * thread may follow.
 */
bool ram_reset_do_save_zero(const void *page)
{
    return qemu_thread_is_self(&save.thread) && ram_reset_is_unpopulated(page);
}

void ram_reset_do_save_page(QEMUFile *f, const RAMBlock *rb, ram_addr_t offset)
{
    if (qemu_thread_is_self(&save.thread) && save.places) {
        page_places_put(save.places, rb->idstr, offset,
                        qemu_file_transferred(f));
    }
}

void ram_reset_save_ram_done(QEMUFile *f)
{
    qatomic_set(&ram_reset_flags.saving, false);
    /* Bitmaps, and devices of these targets, may lie between RAM sections */
    save.ram_end = migrate_dirty_bitmaps() || migrate_mapped_ram() ||
                   qemu_arch_available(QEMU_ARCH_PPC | QEMU_ARCH_S390X)
                   ? 0 : qemu_file_transferred(f) + RAM_RECORD;
    if (save.places && is_savevm()) {
        page_places_zeros(save.places, stat64_get(&mig_stats.zero_pages));
        page_places_set_footer(save.places, save.ram_end);
    }
}

/* When the snapshot has been made, the active layer has no VM state any more */
uint64_t ram_reset_save_size(uint64_t size)
{
    save.store = page_store_new(save.bs, g_steal_pointer(&save.places));
    return save.in_memory ? 0 : size;
}

bool ram_reset_saves_no_ram(void)
{
    return save.in_memory && is_savevm();
}

/* Two saves without a name within a second have the same name */
static bool find_newest(BlockDriverState *bs, const char *name,
                        QEMUSnapshotInfo *sn)
{
    g_autofree QEMUSnapshotInfo *list = NULL;
    int n = bdrv_snapshot_list(bs, &list);

    while (n > 0 && strcmp(list[n - 1].name, name)) {
        n--;
    }
    if (n > 0) {
        *sn = list[n - 1];
    }
    return n > 0;
}

static void note_saved_in_memory(BlockDriverState *bs,
                                 const QEMUSnapshotInfo *sn)
{
    RamResetSnapshot *s = ram_reset_snapshot_get(bs, sn);
    QEMUFile *f;

    s->ram_end = save.ram_end;
    s->vmstate = g_byte_array_free_to_bytes(g_steal_pointer(&save.vmstate));
    f = vmstate_cache_open(&s->cache, s->vmstate, NULL, s->ram_end, 0);
    s->summary = ram_reset_summary_of_memory(f, s->vmstate, s->ram_end);
    qemu_fclose(f);
    s->digest = ram_reset_verify_wanted() ? ram_reset_digest() : NULL;
    s->point = save.point;
    save.point = 0;
    s->ignore_shared = migrate_ignore_shared();
    ram_reset_snapshot_set_current(s);
    s->map = ram_reset_map_copy();
}

/* Returns false if a snapshot in memory has no place in the image */
static bool note_saved(BlockDriverState *bs, const char *name)
{
    g_autofree char *identity = NULL;
    RamResetSnapshot *s;
    QEMUSnapshotInfo sn;

    ram_reset_snapshot_set_current(NULL);
    if (!ram_reset_enabled() || !find_newest(bs, name, &sn)) {
        return !save.in_memory;
    }
    if (save.in_memory) {
        note_saved_in_memory(bs, &sn);
        return true;
    }
    s = ram_reset_snapshot_get(bs, &sn);
    s->ram_end = save.ram_end;
    identity = ram_reset_template_identity(s, bs);
    if (identity && s->ram_end > 0) {
        ram_reset_template_make(identity, s->ram_end, false);
    }
    if (ram_reset_rewind_wanted()) {
        page_store_set_snapshot(save.store, s);
        ram_reset_baseline_of_save(s, g_steal_pointer(&save.store));
    }
    ram_reset_snapshot_set_current(s);
    s->map = ram_reset_map_copy();
    return true;
}

QEMUFile *ram_reset_save_open(BlockDriverState *bs)
{
    g_autoptr(QIOChannelBlock) ioc = qio_channel_block_new(bs);

    save.writing = true;
    save.file_length = ram_reset_qcow2_file_length(bs);
    ram_reset_qcow2_clear_vmstate(bs);
    if (save.in_memory) {
        save.vmstate = g_byte_array_new();
        return vmstate_memory_create(save.vmstate);
    }
    if (ram_reset_rewind_wanted()) {
        save.bs = bs;
        save.places = page_places_new();
    }
    return qemu_file_new_output(QIO_CHANNEL(ioc));
}

/* A guest or a block job may have removed the disk during the save */
static bool check_disk(BlockDriverState *bs, bool has_devices,
                       strList *devices, Error **errp)
{
    g_autoptr(GPtrArray) disks = ram_reset_disks(has_devices, devices);

    if (!g_ptr_array_find(disks, bs, NULL)) {
        error_setg(errp, "Disk '%s', which has the VM state, has "
                   "been removed during the save",
                   bdrv_get_device_or_node_name(bs));
        return false;
    }
    return true;
}

/* The save takes the place of snapshots called @name */
static bool fits_in_limit(const char *name, Error **errp)
{
    const SaveRequest *r = &save.request;

    save.hit_limit = r->limit && !ram_reset_memory_fits(
        r->tags, r->limit, name, save.point, save.vmstate->len, errp);
    return !save.hit_limit;
}

/* Before an old snapshot of the name is deleted, so that a failure loses none */
static bool take_memory(const char *name, Error **errp)
{
    if (save.ram_end <= 0) {
        error_setg(errp, "The snapshot cannot be saved in memory: its VM state "
                   "has devices between the sections of RAM");
        return false;
    }
    /* The guest has written since RAM was that of a template */
    ram_reset_template_close();
    save.point = ram_reset_baseline_of_memory(NULL);
    if (!save.point) {
        ram_reset_snapshots_trim();
        save.point = ram_reset_baseline_of_memory(errp);
    }
    return save.point && ram_reset_pin_point(save.point, errp) &&
           fits_in_limit(name, errp);
}

static bool save_complete(BlockDriverState *bs, const char *name,
                          bool has_devices, strList *devices, Error **errp)
{
    bool ok;

    if (!check_disk(bs, has_devices, devices, errp)) {
        ram_reset_save_undo(name, has_devices, devices);
        return false;
    }
    if (save.in_memory && !take_memory(name, errp)) {
        ram_reset_save_undo(name, has_devices, devices);
        return false;
    }
    /* The deletion may have removed the open template */
    ok = ram_reset_delete_overwritten(name, has_devices, devices, errp);
    ram_reset_template_close();
    if (ok && !note_saved(bs, name)) {
        error_setg(errp, "Snapshot '%s' is not in the list of '%s' any more",
                   name, bdrv_get_device_or_node_name(bs));
        ok = false;
    }
    return ok;
}

int ram_reset_save_end(int ret, BlockDriverState *bs, const char *name,
                       bool has_devices, strList *devices, Error **errp)
{
    ram_reset_unpopulated_end();
    if (ret >= 0 && !save_complete(bs, name, has_devices, devices, errp)) {
        ret = -EIO;
    }
    if (ret < 0 && save.writing && !save.in_memory) {
        ram_reset_qcow2_drop_vmstate(bs, save.file_length);
    }
    ram_reset_drop_point(save.point);
    save.point = 0;
    g_clear_pointer(&save.vmstate, g_byte_array_unref);
    g_clear_pointer(&save.places, page_places_free);
    g_clear_pointer(&save.store, ram_reset_page_store_free);
    save.writing = save.in_memory = false;
    return ret;
}

/*
 * Pause vCPUs before the disks are listed.  A stop of the VM releases the BQL,
 * and a running vCPU could unplug a disk then.
 */
bool save_snapshot(const char *name, bool overwrite, const char *vmstate,
                   bool has_devices, strList *devices, Error **errp)
{
    GPtrArray *disks;
    bool ok;

    save.request = save.next;
    save.next = (SaveRequest) { 0 };
    save.hit_limit = false;
    if (runstate_is_running()) {
        pause_all_vcpus();
    }
    removed_ram_wait();
    disks = ram_reset_disks(has_devices, devices);
    ram_reset_overwrite_begin(disks, name);
    ok = ram_reset_do_save(name, overwrite, vmstate, has_devices, devices,
                           errp);
    ram_reset_overwrite_end();
    save.in_memory = false;
    g_ptr_array_unref(disks);
    if (!ok) {
        resume_all_vcpus();
    }
    return ok;
}
