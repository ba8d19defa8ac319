/*
 * RAM reset in the course of saving a snapshot
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qapi/error.h"
#include "qemu/main-loop.h"
#include "block/snapshot.h"
#include "system/ram-reset-compat.h"
#include "system/ram-reset-load.h"
#include "system/ram-reset-rewind.h"
#include "system/ram-reset-template.h"
#include "system/runstate.h"
#include "migration/misc.h"
#include "migration/ram-reset.h"
#include "migration.h"
#include "options.h"
#include "qemu-file.h"
#include "migration/ram-reset-identity.h"
#include "migration/ram-reset-replace.h"
#include "migration/ram-reset-layout.h"
#include "migration/ram-reset-mapped.h"
#include "migration/ram-reset-rewind.h"

/* RAM_SAVE_FLAG_EOS */
#define END_OF_SECTION 8

static struct {
    /* The thread that saves; written before ram_reset_flags.saving is set */
    QemuThread thread;
    /* Where RAM's last section ends in the VM state saved last; BQL held */
    int64_t ram_end;
} save;

/* HMP's savevm takes all disks, so that it has to be told which it is not to */
static bool check_disks(bool has_devices, strList *devices, Error **errp)
{
    ERRP_GUARD();

    if (bdrv_all_can_snapshot(has_devices, devices, errp)) {
        return true;
    }
    if (!has_devices && ram_reset_enabled()) {
        error_append_hint(errp, "Convert it to qcow2, make it read-only, or, "
                          "if it need not go back with the guest, name it "
                          "with keep-disks= of the ram-reset object.\n");
    }
    return false;
}

bool ram_reset_save_prepare(bool has_devices, strList *devices, Error **errp)
{
    const char *blocker = ram_reset_mapped_ram_blocker();

    ram_reset_replace_nothing();
    if (blocker && ram_reset_enabled()) {
        error_setg(errp, "No snapshot can be saved: %s", blocker);
        return false;
    }
    return ram_reset_vm_is_whole(errp) &&
           check_disks(has_devices, devices, errp);
}

/*
 * Of those who save RAM, savevm alone does so in the main thread, where a timer
 * syncs for a migration with auto-converge as well.  savevm has stopped vCPUs
 * before, so nobody writes to RAM until all of it is saved.
 */
void ram_reset_save_sync(void)
{
    bool savevm = qemu_get_thread_id() == getpid() &&
                  !migrate_get_current()->migration_thread_running;

    qatomic_set(&ram_reset_flags.dirty_bits_taken, true);
    if (savevm) {
        assert(bql_locked() && !runstate_is_running());
        qemu_thread_get_self(&save.thread);
        ram_reset_unpopulated_begin();
    }
    qatomic_set(&ram_reset_flags.saving, savevm);
}

/*
 * A savevm that has failed leaves ram_reset_flags.saving set, and a migration
 * in another thread may come next.
 */
bool ram_reset_do_save_zero(const void *page)
{
    return qemu_thread_is_self(&save.thread) && ram_reset_is_unpopulated(page);
}

void ram_reset_save_ram_done(QEMUFile *f)
{
    qatomic_set(&ram_reset_flags.saving, false);
    /* These, and devices of those targets, may lie between RAM's sections */
    save.ram_end = migrate_dirty_bitmaps() || migrate_mapped_ram() ||
                   qemu_arch_available(QEMU_ARCH_PPC | QEMU_ARCH_S390X)
                   ? 0 : qemu_file_transferred(f) + END_OF_SECTION;
}

static void note_saved(BlockDriverState *bs, const char *name)
{
    g_autofree char *identity = NULL;
    QEMUSnapshotInfo sn;

    if (!ram_reset_enabled() || bdrv_snapshot_find(bs, &sn, name) < 0) {
        return;
    }
    ram_reset_map_keep(ram_reset_snapshot_key(bs, &sn));
    identity = ram_reset_template_identity(bs, &sn);
    if (identity && save.ram_end > 0) {
        ram_reset_template_make(identity, save.ram_end, false,
                                &ram_reset_migrate_ignored);
    }
    if (ram_reset_rewind_wanted()) {
        ram_reset_baseline_of_save(bs, &sn, save.ram_end);
    }
}

int ram_reset_saved(BlockDriverState *bs, const char *name, bool has_devices,
                    strList *devices, Error **errp)
{
    bool ok;

    ram_reset_unpopulated_end();
    /* The template that is open may be one that is deleted now */
    ok = ram_reset_delete_replaced(name, has_devices, devices, errp);
    ram_reset_template_close();
    if (!ok) {
        return -EIO;
    }
    note_saved(bs, name);
    return 0;
}
