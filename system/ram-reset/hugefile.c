/*
 * ram-reset-hugefile: hugepages that outlive a load, and QEMU
 *
 * In a load, pages that may hold bytes other than zero and that the snapshot
 * does not overwrite are cleared in place.  Between runs they stay in the
 * file, which is looked after from before it is mapped until RAM is gone, see
 * hugerecord.h.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qapi/error.h"
#include "qemu/bitmap.h"
#include "qemu/error-report.h"
#include "qemu/madvise.h"
#include "qemu/units.h"
#include "hw/qdev-core.h"
#include "qom/object_interfaces.h"
#include "system/runstate.h"
#include "system/ram-reset/block/clear.h"
#include "hugefile.h"
#include "hugeram.h"
#include "system/ram-reset/prim/trusted-file.h"
#include "trace.h"

/* Before any device can look at RAM when the VM starts to run */
#define VM_STATE_PRIORITY (-1000)

/* -loadvm will overwrite RAM before the guest runs */
static bool load_expected;

void ram_reset_expect_load(void)
{
    load_expected = true;
}

static PrimMap hugefile_map(RamResetHugefile *hf, uint64_t *calls)
{
    PrimMap map = ram_reset_block_map(hf->rb);

    map.calls = calls;
    return map;
}

/*
 * Where there is no page table, mincore() says of pages in the file that they
 * are mapped.  So touch a page wherever one begins, or earlier.
 */
static void make_page_tables(RamResetHugefile *hf)
{
    uintptr_t at = (uintptr_t)hf->rb->host;
    uintptr_t end = at + hf->rb->used_length;

    for (; at < end; at = QEMU_ALIGN_DOWN(at + GiB, GiB)) {
        /* volatile: it is read for the page fault's sake */
        *(volatile uint8_t *)at;
        /* The page table stays; if this is refused one page counts as used */
        qemu_madvise((void *)at, hf->rb->page_size, QEMU_MADV_DONTNEED);
    }
}

/* Of pages that are not in the file nobody knows anything: they are zero */
static void discard_holes(RamResetHugefile *hf)
{
    PrimMap map = hugefile_map(hf, NULL);
    g_autofree unsigned long *old = g_steal_pointer(&hf->old);
    g_autofree PrimDataIter *it = g_new(PrimDataIter, 1);
    uint64_t from, to;

    hf->old = bitmap_new(hf->record.pages);
    prim_data_begin(it, &map, prim_backing(&map), 0, map.len);
    while (prim_data_next(it, &from, &to)) {
        bitmap_set(hf->old, from / map.page_size, (to - from) / map.page_size);
    }
    prim_data_end(it);
    bitmap_and(hf->old, hf->old, old, hf->record.pages);
}

/*
 * Pages that may hold bytes of this run, or of earlier ones.  Our page table
 * tells of this run, if nobody else has the file mapped.
 */
static void add_used_pieces(RamResetHugefile *hf, const RamResetBlock *blk,
                            const PrimMap *map, bool earlier_only,
                            GArray *pieces)
{
    uint64_t size = map->page_size, at, from;

    for (at = 0; at < map->len; at += size) {
        from = at;
        while (at < map->len &&
               ((hf->old && test_bit(at / size, hf->old)) ||
                (!earlier_only && prim_hugepage_mapped(map, at)))) {
            at += size;
        }
        ram_reset_add_pieces(blk, pieces, from, at);
    }
}

static uint64_t clear_old(RamResetHugefile *hf)
{
    PrimMap map = hugefile_map(hf, NULL);
    g_autoptr(GArray) pieces = g_array_new(false, false,
                                           sizeof(RamResetPiece));
    RamResetBlock blk = { 0 };

    add_used_pieces(hf, &blk, &map, true, pieces);
    g_clear_pointer(&hf->old, g_free);
    return ram_reset_clear_pieces(map.host, pieces,
                                  ram_reset_threads(RAM_RESET(hf)));
}

static void clear_before_start(RamResetHugefile *hf)
{
    int64_t before = g_get_monotonic_time();
    uint64_t cleared = clear_old(hf);

    hf->info.cleared_bytes = cleared;
    hf->info.clear_ns = (g_get_monotonic_time() - before) * 1000;
    trace_ram_reset_hugefile_start(hf->path, cleared);
}

static void hugefile_vm_state(void *opaque, bool running, RunState state)
{
    RamResetHugefile *hf = opaque;

    /* The load that was expected has left this block alone */
    if (running && hf->rb && hf->old) {
        clear_before_start(hf);
    }
}

/*
 * Whether our page table has all that is written to the file: nobody else
 * maps it, no device gets at it by other ways, and mincore() tells the truth,
 * which it does to the owner of the file.
 */
static bool nobody_else_maps(RamResetHugefile *hf)
{
    struct stat st;

    return hf->watched && !ram_block_discard_is_disabled() &&
           fstat(hf->rb->fd, &st) == 0 && trusted_file_is_ours(&st) &&
           hugeram_access_time(&st) == hf->record.access_time;
}

static bool hugefile_supports(RamReset *rr, const RamResetBlock *blk,
                              Error **errp)
{
    if (RAM_RESET_HUGEFILE(rr)->rb != blk->rb) {
        error_setg(errp, "its file is not one of this object");
        return false;
    }
    return true;
}

static int hugefile_zero(RamReset *rr, RamResetBlock *blk,
                         uint64_t start, uint64_t len)
{
    RamResetHugefile *hf = RAM_RESET_HUGEFILE(rr);
    g_autoptr(GArray) pieces = NULL;

    ++*blk->map.calls;      /* by nobody_else_maps() */
    if (!nobody_else_maps(hf) || start || len != blk->map.len) {
        /* Looks at the file, too, where our page table has nothing */
        g_clear_pointer(&hf->old, g_free);
        ram_reset_clear_in_place(blk, start, len, ram_reset_threads(rr));
        return 0;
    }
    pieces = g_array_new(false, false, sizeof(RamResetPiece));
    add_used_pieces(hf, blk, &blk->map, false, pieces);
    g_clear_pointer(&hf->old, g_free);
    ram_reset_clear_block(blk, pieces, ram_reset_threads(rr));
    return 0;
}

/* Clear what this run has used, or note it down */
static void clean_up(RamResetHugefile *hf)
{
    HugeRecord *rec = &hf->record;
    PrimMap map = hugefile_map(hf, NULL);
    g_autoptr(GArray) pieces = g_array_new(false, false,
                                           sizeof(RamResetPiece));
    RamResetBlock blk = { 0 };

    memset(rec->dirty, false, rec->pages);
    add_used_pieces(hf, &blk, &map, false, pieces);
    if (hf->unlink == RAM_RESET_UNLINK_NEVER && hf->clear_on_exit) {
        ram_reset_clear_pieces(map.host, pieces,
                               ram_reset_threads(RAM_RESET(hf)));
        return;
    }
    for (unsigned i = 0; i < pieces->len; i++) {
        RamResetPiece *p = &g_array_index(pieces, RamResetPiece, i);

        for (uint64_t at = p->start; at < p->start + p->len;
             at += map.page_size) {
            rec->dirty[at / map.page_size] = true;
        }
    }
}

/*
 * RAM is in order and nobody writes to it any more: say what it holds.  After
 * a migration it may be what the other QEMU runs on (x-ignore-shared).
 */
static void hugefile_release(RamResetHugefile *hf)
{
    HugeRecord *rec = &hf->record;
    bool ours = !runstate_check(RUN_STATE_POSTMIGRATE) &&
                hugeram_is_ours_alone(hf->rb->fd, true) && nobody_else_maps(hf);

    if (ours) {
        clean_up(hf);
    } else if (hf->unlink == RAM_RESET_UNLINK_NEVER) {
        warn_report("%s '%s': '%s' is left as it is, since others may use it; "
                    "the next start clears all of it", TYPE_RAM_RESET_HUGEFILE,
                    hf->id, hf->path);
    }
    rec->in_use = false;
    if (!hugeram_watch(hf->rb->fd, &rec->access_time)) {
        memset(rec->dirty, true, rec->pages);
    }
    hugerecord_write(hf->state_fd, rec);
    trace_ram_reset_hugefile_end(hf->path, ours);
}

static void hugefile_let_go(RamResetHugefile *hf)
{
    if (hf->rb) {
        /* First of all: the notifier is told of each block when it goes */
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
        hugefile_forget_claim(hf);
        hf->reclaiming = true;
    }
}

/* The file has been mapped, and nobody has looked at it yet */
static bool hugefile_mapped(RamResetHugefile *hf, HostMemoryBackend *backend,
                            Error **errp)
{
    bool closed;
    char *reason;

    reason = hugeram_take_over(hf->claim_fd, backend->mr.ram_block->fd,
                               hf->path);
    hf->claim_fd = -1;
    if (!reason && hf->unlink == RAM_RESET_UNLINK_ALWAYS &&
        unlink(hf->path) < 0) {
        reason = g_strdup_printf("it cannot be removed: %s", strerror(errno));
    }
    if (reason) {
        hugefile_error(hf, hf->path, reason, errp);
        return false;
    }
    hf->rb = backend->mr.ram_block;
    hf->watched = hugeram_watch(hf->rb->fd, &hf->record.access_time);
    /* Not before: what the one does not see any more the other does */
    closed = hf->notice < 0 || hugeram_was_closed(hf->notice);
    hf->notice = -1;
    hf->notifier.ram_block_removed = hugefile_removed;
    ram_block_notifier_add(&hf->notifier);
    hf->vm_state = qemu_add_vm_change_state_handler_prio(hugefile_vm_state, hf,
                                                         VM_STATE_PRIORITY);
    if (hf->unlink == RAM_RESET_UNLINK_NEVER && !hf->watched) {
        warn_report("%s '%s': it cannot be told who maps '%s' (mounted with "
                    "noatime, or open elsewhere): all of it is cleared at "
                    "each start", TYPE_RAM_RESET_HUGEFILE,
                    ram_reset_id(RAM_RESET(hf)), hf->path);
    }
    if (hf->unlink == RAM_RESET_UNLINK_NEVER) {
        warn_report("%s '%s': unlink=never: '%s' keeps its hugepages, and what "
                    "the guest had in them if QEMU is killed, until somebody "
                    "removes it", TYPE_RAM_RESET_HUGEFILE,
                    ram_reset_id(RAM_RESET(hf)), hf->path);
    }
    if (closed) {
        /* Somebody has had the file since it was looked at */
        g_free(hf->old);
        hf->old = bitmap_new(hf->record.pages);
        bitmap_set(hf->old, 0, hf->record.pages);
    }
    if (hf->info.reused_pages) {
        make_page_tables(hf);
    }
    if (hf->old) {
        discard_holes(hf);
        hf->info.dirty_pages = bitmap_count_one(hf->old, hf->record.pages);
        if (!load_expected || phase_check(PHASE_MACHINE_READY)) {
            clear_before_start(hf);
        }
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
        hugefile_forget_claim(hf);
        return false;
    }
    if (!hugefile_mapped(hf, backend, errp)) {
        hugefile_forget_claim(hf);
        hf->reclaiming = true;
        return false;
    }
    return true;
}

static bool hugefile_check(RamReset *rr, Error **errp)
{
    Object *obj;

    if (!rr->memdev) {
        error_setg(errp, "%s '%s': property 'memdev' is missing: one object "
                   "serves one memory backend", TYPE_RAM_RESET_HUGEFILE,
                   ram_reset_id(rr));
        return false;
    }
    obj = object_resolve_path_component(object_get_objects_root(), rr->memdev);
    if (obj && !RAM_RESET_HUGEFILE(rr)->rb) {
        error_setg(errp, "%s '%s': memory backend '%s' has been made without "
                   "it; create the %s object first", TYPE_RAM_RESET_HUGEFILE,
                   ram_reset_id(rr), rr->memdev, TYPE_RAM_RESET_HUGEFILE);
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

/* Deleting it would leave nobody to look after the file */
static bool hugefile_can_be_deleted(UserCreatable *uc)
{
    return !RAM_RESET_HUGEFILE(uc)->rb;
}

static int hugefile_get_unlink(Object *obj, Error **errp)
{
    return RAM_RESET_HUGEFILE(obj)->unlink;
}

/* What has been done to the file cannot be undone */
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

    /* At QEMU's end: vCPUs and devices have been stopped, if all went well */
    if (hf->rb && !runstate_is_live(runstate_get())) {
        hugefile_release(hf);
    }
    hugefile_let_go(hf);
    hugefile_forget_claim(hf);
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
    USER_CREATABLE_CLASS(oc)->can_be_deleted = hugefile_can_be_deleted;

    object_class_property_add_enum(oc, "unlink", "RamResetUnlink",
                                   &RamResetUnlink_lookup,
                                   hugefile_get_unlink, hugefile_set_unlink);
    object_class_property_set_description(oc, "unlink",
        "When to remove the file: if it exists at start (existing), then and "
        "as soon as it is mapped (always), or never");
    object_class_property_add_str(oc, "state", hugefile_get_state,
                                  hugefile_set_state);
    object_class_property_set_description(oc, "state",
        "File that says which hugepages may hold bytes of an earlier run");
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
