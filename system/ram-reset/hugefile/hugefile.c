/*
 * ram-reset-hugefile: hugepages that outlive a load, and QEMU
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

/*
 * In a load, QEMU clears in place all bytes that may not be zero and that the
 * snapshot does not overwrite.  Between runs the pages stay in the file, and a
 * record describes them, see record.h.  The record must never call a dirty page
 * clean, however QEMU ends and whoever else opens the file.  So QEMU
 *
 * 1. locks the record, then the file, and refuses a file that another process
 *    has open (hugefile_claim());
 * 2. trusts the record only if its checksum is right, it was written by a clean
 *    exit since the host was started, it is of this very file, and the file
 *    still has the access time set then, which shows that nobody has mapped it:
 *    else all pages may be dirty;
 * 3. writes "in use, all pages dirty" before the file can be written to;
 * 4. maps the file, moves its lock to the new descriptor, sets another access
 *    time, and counts all pages as dirty if a process has closed the file since
 *    it was claimed (hugefile_mapped());
 * 5. clears the dirty pages before the guest runs, in a load or without one;
 * 6. at exit takes a lease, which makes other processes wait.  If the access
 *    time shows that nobody has mapped the file, and no other QEMU can use it
 *    after a migration, it clears the pages in its own page table or lists them
 *    as dirty; otherwise all pages are dirty.  Only then it writes "not in use"
 *    (hugefile_release()).
 *
 * A QEMU that is killed between 3 and 6 leaves a record that is not trusted.
 */

#include "qemu/osdep.h"
#include "qapi/error.h"
#include "qemu/bitmap.h"
#include "qemu/error-report.h"
#include "qom/object_interfaces.h"
#include "system/runstate.h"
#include "system/ram-reset.h"
#include "system/ram-reset/block/block.h"
#include "system/ram-reset/hugefile/file.h"
#include "system/ram-reset/hugefile/hugefile.h"
#include "system/ram-reset/hugefile/pages.h"
#include "system/ram-reset/options.h"
#include "system/ram-reset/prim/trusted-file.h"
#include "system/ram-reset/report.h"
#include "system/ram-reset/trace.h"

/* Before any device can read RAM when the VM starts */
#define VM_STATE_PRIORITY (-1000)

static void hugefile_vm_state(void *opaque, bool running, RunState state)
{
    RamResetHugefile *hf = opaque;

    /* The expected load has not touched this block */
    if (running && hf->rb && hf->old) {
        hugefile_clear_old(hf);
    }
}

static bool hugefile_supports(RamReset *rr, const RamResetBlock *blk,
                              Error **errp)
{
    /* @rr may be an object that delegates to hugefile */
    Object *own = object_dynamic_cast(OBJECT(rr), TYPE_RAM_RESET_HUGEFILE);

    if (!own || RAM_RESET_HUGEFILE(own)->rb != blk->rb) {
        error_setg(errp, "its file is not one of this object");
        return false;
    }
    return true;
}

static int hugefile_zero(RamReset *rr, RamResetBlock *blk,
                         uint64_t start, uint64_t len)
{
    hugefile_zero_pages(RAM_RESET_HUGEFILE(rr), blk, start, len);
    return 0;
}

/*
 * Write the record when RAM does not change any more.  After a migration
 * another QEMU may run on the file (x-ignore-shared).
 */
static void hugefile_release(RamResetHugefile *hf)
{
    HugeRecord *rec = &hf->record;
    bool ours = !runstate_check(RUN_STATE_POSTMIGRATE) &&
                trusted_file_is_ours_alone(hf->rb->fd, true) &&
                hugefile_nobody_else_maps(hf);

    if (ours) {
        hugefile_clean_up(hf);
    } else if (hf->unlink == RAM_RESET_UNLINK_NEVER) {
        warn_report("%s '%s': '%s' is left as it is, since others may use it; "
                    "the next start clears all of it", TYPE_RAM_RESET_HUGEFILE,
                    hf->id, hf->path);
    }
    rec->in_use = false;
    if (!hugefile_file_watch(hf->rb->fd, &rec->access_time)) {
        bitmap_set(rec->dirty, 0, rec->pages);
    }
    hugefile_record_write(hf->state_fd, rec);
    trace_ram_reset_hugefile_end(hf->path, ours);
}

static void hugefile_let_go(RamResetHugefile *hf)
{
    if (hf->rb) {
        /* Do this first: removing the notifier calls it for each block */
        hf->rb = NULL;
        ram_block_notifier_remove(&hf->notifier);
        qemu_del_vm_change_state_handler(hf->vm_state);
    }
}

static void hugefile_removed(RAMBlockNotifier *n, void *host, size_t size,
                             size_t max_size)
{
    RamResetHugefile *hf = container_of(n, RamResetHugefile, notifier);

    if (hf->rb && host == hf->rb->host) {
        hugefile_release(hf);
        hugefile_let_go(hf);
        hugefile_drop_claim(hf);
        hf->reclaiming = true;
    }
}

/* Move the lock from the descriptor that has claimed the file to QEMU's */
static bool move_lock(RamResetHugefile *hf, int fd, Error **errp)
{
    ERRP_GUARD();
    bool ok = hugefile_file_move_lock(hf->claim_fd, fd, hf->path, errp);

    hf->claim_fd = -1;
    if (ok && hf->unlink == RAM_RESET_UNLINK_ALWAYS && unlink(hf->path) < 0) {
        error_setg(errp, "it cannot be removed: %s", strerror(errno));
        ok = false;
    }
    if (!ok) {
        hugefile_error_prepend(hf, hf->path, errp);
    }
    return ok;
}

static void warn_of_persistent_file(RamResetHugefile *hf)
{
    if (!hf->watched) {
        ram_reset_warn(RAM_RESET(hf), "cannot find out whether another process "
                       "maps '%s' (mounted with noatime, or open elsewhere): "
                       "all of it is cleared at each start", hf->path);
    }
    ram_reset_warn(RAM_RESET(hf), "unlink=never: '%s' keeps its hugepages, and "
                   "what the guest had in them if QEMU is killed, until "
                   "somebody removes it", hf->path);
}

/* Called when the file has been mapped, before anybody reads it */
static bool hugefile_mapped(RamResetHugefile *hf, HostMemoryBackend *backend,
                            Error **errp)
{
    RAMBlock *rb = backend->mr.ram_block;
    bool closed;

    if (!move_lock(hf, rb->fd, errp)) {
        return false;
    }
    hf->rb = rb;
    hf->watched = hugefile_file_watch(rb->fd, &hf->record.access_time);
    /*
     * Not earlier: a process that still had the file open is found by the check
     * above, and one that has closed it by this
     */
    closed = hf->notice < 0 || hugefile_file_was_closed(hf->notice);
    hf->notice = -1;
    hf->notifier.ram_block_removed = hugefile_removed;
    ram_block_notifier_add(&hf->notifier);
    hf->vm_state = qemu_add_vm_change_state_handler_prio(hugefile_vm_state, hf,
                                                         VM_STATE_PRIORITY);
    if (hf->unlink == RAM_RESET_UNLINK_NEVER) {
        warn_of_persistent_file(hf);
    }
    /*
     * Count all pages as dirty if another process has had the file open
     * meanwhile
     */
    hugefile_find_old(hf, closed);
    if (hf->old && (!ram_reset_load_is_expected() ||
                    phase_check(PHASE_MACHINE_READY))) {
        hugefile_clear_old(hf);
    }
    return true;
}

bool ram_reset_backend_alloc(HostMemoryBackend *backend,
                             bool (*alloc)(HostMemoryBackend *backend,
                                           Error **errp),
                             Error **errp)
{
    RamResetHugefile *hf = hugefile_by_memdev(backend);

    if (!hf) {
        return alloc(backend, errp);
    }
    if (!hugefile_claim(hf, backend, errp)) {
        return false;
    }
    if (!alloc(backend, errp)) {
        hugefile_drop_claim(hf);
        return false;
    }
    if (!hugefile_mapped(hf, backend, errp)) {
        hugefile_drop_claim(hf);
        hf->reclaiming = true;
        return false;
    }
    return true;
}

static bool hugefile_check(RamReset *rr, Error **errp)
{
    Object *obj;

    if (!rr->memdev) {
        ram_reset_error(rr, errp, "property 'memdev' is missing: one object "
                        "serves one memory backend");
        return false;
    }
    obj = object_resolve_path_component(object_get_objects_root(), rr->memdev);
    if (obj && !RAM_RESET_HUGEFILE(rr)->rb) {
        ram_reset_error(rr, errp, "memory backend '%s' was created without "
                        "it; create the %s object first", rr->memdev,
                        TYPE_RAM_RESET_HUGEFILE);
        return false;
    }
    return true;
}

static void hugefile_query(RamReset *rr, RamResetObjectInfo *obj)
{
    RamResetHugefile *hf = RAM_RESET_HUGEFILE(rr);
    RamResetHugefileInfo *info;

    if (!hf->rb) {
        return;
    }
    info = obj->hugefile = g_memdup2(&hf->info, sizeof(hf->info));
    info->file = g_strdup(hf->info.file);
    info->state = g_strdup(hf->info.state);
    info->record = g_strdup(hf->info.record);
    info->unlink = hf->unlink;
}

static bool hugefile_prepare_delete(UserCreatable *uc, Error **errp)
{
    if (RAM_RESET_HUGEFILE(uc)->rb) {
        error_setg(errp, "'%s' is in use: it manages the file of guest "
                   "RAM, which outlives it",
                   object_get_canonical_path_component(OBJECT(uc)));
        return false;
    }
    return true;
}
RAM_RESET_PREPARE_DELETE(hugefile_prepare_delete)

static int hugefile_get_unlink(Object *obj, Error **errp)
{
    return RAM_RESET_HUGEFILE(obj)->unlink;
}

/* False once the file is in use: these properties cannot change then */
static bool can_be_set(RamResetHugefile *hf, const char *name, Error **errp)
{
    if (hf->state_fd >= 0) {
        error_setg(errp, "cannot change property '%s' of %s '%s' while its "
                   "file is in use", name, TYPE_RAM_RESET_HUGEFILE,
                   ram_reset_id(RAM_RESET(hf)));
    }
    return hf->state_fd < 0;
}

static void hugefile_set_unlink(Object *obj, int value, Error **errp)
{
    RamResetHugefile *hf = RAM_RESET_HUGEFILE(obj);

    if (can_be_set(hf, "unlink", errp)) {
        hf->unlink = value;
    }
}

static char *hugefile_get_state(Object *obj, Error **errp)
{
    return g_strdup(RAM_RESET_HUGEFILE(obj)->state);
}

static void hugefile_set_state(Object *obj, const char *value, Error **errp)
{
    RamResetHugefile *hf = RAM_RESET_HUGEFILE(obj);

    if (can_be_set(hf, "state", errp)) {
        g_free(hf->state);
        hf->state = g_strdup(value);
    }
}

static bool hugefile_get_clear_on_exit(Object *obj, Error **errp)
{
    return RAM_RESET_HUGEFILE(obj)->clear_on_exit;
}

static void hugefile_set_clear_on_exit(Object *obj, bool value, Error **errp)
{
    RAM_RESET_HUGEFILE(obj)->clear_on_exit = value;
}

static void hugefile_instance_init(Object *obj)
{
    RamResetHugefile *hf = RAM_RESET_HUGEFILE(obj);

    hf->state_fd = hf->claim_fd = hf->notice = -1;
    hf->clear_on_exit = true;
}

static void hugefile_instance_finalize(Object *obj)
{
    RamResetHugefile *hf = RAM_RESET_HUGEFILE(obj);

    /* At QEMU's exit: vCPUs and devices have been stopped, if all went well */
    if (hf->rb && !runstate_is_live(runstate_get())) {
        hugefile_release(hf);
    }
    hugefile_let_go(hf);
    hugefile_drop_claim(hf);
    g_free(hf->state);
}

static void hugefile_class_init(ObjectClass *oc, RamResetClassData *data)
{
    RamResetClass *rrc = RAM_RESET_CLASS(oc);

    rrc->late = true;
    rrc->memdev_comes_later = true;
    rrc->check = hugefile_check;
    rrc->locks_file = true;
    rrc->supports = hugefile_supports;
    rrc->zero = hugefile_zero;
    rrc->query = hugefile_query;
    ram_reset_set_prepare_delete(USER_CREATABLE_CLASS(oc),
                                 hugefile_prepare_delete);

    object_class_property_add_enum(oc, "unlink", "RamResetUnlink",
                                   &RamResetUnlink_lookup,
                                   hugefile_get_unlink, hugefile_set_unlink);
    object_class_property_set_description(oc, "unlink",
        "When to remove the file: if it exists at start (existing), then and "
        "as soon as it is mapped (always), or never");
    object_class_property_add_str(oc, "state", hugefile_get_state,
                                  hugefile_set_state);
    object_class_property_set_description(oc, "state",
        "File that records which hugepages may hold bytes of an earlier run");
    object_class_property_add_bool(oc, "clear-on-exit",
                                   hugefile_get_clear_on_exit,
                                   hugefile_set_clear_on_exit);
    object_class_property_set_description(oc, "clear-on-exit",
        "With unlink=never, clear memory when QEMU ends, not when it starts");
}

static const TypeInfo hugefile_types[] = {
    {
        .name = TYPE_RAM_RESET_HUGEFILE,
        .parent = TYPE_RAM_RESET,
        .instance_size = sizeof(RamResetHugefile),
        .instance_init = hugefile_instance_init,
        .instance_finalize = hugefile_instance_finalize,
        .class_init = hugefile_class_init,
    },
};

DEFINE_TYPES(hugefile_types)
