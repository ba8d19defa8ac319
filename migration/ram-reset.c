/*
 * RAM reset in the course of loading a snapshot
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qapi/error.h"
#include "qapi/clone-visitor.h"
#include "qapi/qapi-visit-ram-reset.h"
#include "qemu/timer.h"
#include "block/block.h"
#include "hw/qdev-core.h"
#include "qemu/bswap.h"
#include "system/ram-reset-load.h"
#include "system/ram-reset-rewind.h"
#include "system/ram-reset-template.h"
#include "system/reset.h"
#include "system/runstate.h"
#include "migration/colo.h"
#include "migration/misc.h"
#include "migration/ram-reset.h"
#include "migration/vmstate.h"
#include "migration.h"
#include "options.h"
#include "postcopy-ram.h"
#include "qemu-file.h"
#include "ram.h"
#include "savevm.h"
#include "ram-reset-identity.h"
#include "ram-reset-layout.h"
#include "ram-reset-rewind.h"
#include "ram-reset-verify.h"
#include "ram-reset-zeros.h"
#include "system/ram-reset/trace.h"

/* The footer of a section, maybe a command, the head of one that goes on */
#define FOOTER  5
#define COMMAND 5
#define HEAD    5

/* Protected by the BQL, as all of load_snapshot() is */
static struct {
    bool active;
    char *tag;
    QEMUSnapshotInfo sn;
    bool rewound, skipped;
    char *blocker;              /* why it was not, with rewind=on */
    char *identity;             /* that its template has; NULL if none may */
    bool from_template;
    int64_t skip_to;            /* RAM's end, if it need not be loaded */
    /*
     * Where in the VM state RAM's last section so far has ended, -1 if other
     * things lie between RAM's sections but the first two, or that is not known
     */
    int64_t ram_end;
    QEMUFile *f;                /* NULL before RAM's first section */
    unsigned sections;          /* of RAM so far */
    uint64_t state_size;        /* bytes */
    BlockDriverState *bs;
    Error *verify_err;
    bool last_section, completed, verified;
    /* When each phase ended, 0 if it has not */
    int64_t start, checked, reverted, was_reset, zeroed, ram_loaded;
    int64_t completing;         /* how long it took, part of making RAM zero */
} load;

static uint64_t loads, failed_loads, rewinds;
/* What only a part of the VM is, by a load that has failed; or NULL */
static char *part_of;
static RamResetLoadInfo *last_load;

static int64_t now(void)
{
    return qemu_clock_get_ns(QEMU_CLOCK_REALTIME);
}

/* What a load cannot be mixed with */
static bool check_migration(Error **errp)
{
    MigrationStatus incoming = migration_incoming_get_current()->state;
    const char *what = NULL;

    if (runstate_check(RUN_STATE_INMIGRATE) ||
        (incoming != MIGRATION_STATUS_NONE &&
         incoming != MIGRATION_STATUS_COMPLETED)) {
        what = "an incoming migration has not completed";
    } else if (migration_is_running()) {
        what = "a migration is running, wait for its end or cancel it";
    } else if (migrate_multifd()) {
        what = "migration capability 'multifd' is on, set it to off";
    } else if (migrate_postcopy_ram()) {
        what = "migration capability 'postcopy-ram' is on, set it to off";
    } else if (migrate_colo() || migration_incoming_colo_enabled()) {
        what = "COLO is set up (migration capability 'x-colo')";
    }
    if (what) {
        error_setg(errp, "RAM reset cannot serve a snapshot load now, "
                   "nothing has been changed: %s", what);
    }
    return !what;
}

bool ram_reset_migration_is_over(void)
{
    MigrationState *s = migrate_get_current();

    return !migration_is_running() && !s->migration_thread_running &&
           !s->to_dst_file && !migration_in_incoming_postcopy();
}

bool ram_reset_vm_is_whole(Error **errp)
{
    if (part_of) {
        error_setg(errp, "The VM has a part of snapshot '%s', whose load has "
                   "failed; load a snapshot, or reset the VM", part_of);
    }
    return !part_of;
}

bool ram_reset_may_migrate(Error **errp)
{
    if (!ram_reset_vm_is_whole(errp)) {
        return false;
    }
    if (runstate_check(RUN_STATE_RESTORE_VM)) {
        /* there is no way from it to RUN_STATE_FINISH_MIGRATE */
        error_setg(errp, "The VM has been stopped to load a snapshot, and has "
                   "not been continued; continue it, then migrate it");
        return false;
    }
    return true;
}

static void whole_again(void *opaque)
{
    g_clear_pointer(&part_of, g_free);
}

/* Until another load, or a reset other than a load's own, makes it whole */
static void note_part(const char *tag)
{
    static bool watching;

    if (!watching) {
        watching = true;
        qemu_register_reset_nosnapshotload(whole_again, NULL);
    }
    whole_again(NULL);
    part_of = g_strdup(tag);
}

/* QEMU takes disks back to the snapshot that has the tag as its id first */
static bool check_tag(BlockDriverState *bs, const char *tag, Error **errp)
{
    g_autofree QEMUSnapshotInfo *list = NULL;
    int n = bdrv_snapshot_list(bs, &list);

    for (int i = 0; i < n; i++) {
        if (!strcmp(list[i].id_str, tag) && strcmp(list[i].name, tag)) {
            error_setg(errp, "'%s' is the name of one snapshot and the id of "
                       "another, '%s'", tag, list[i].name);
            error_append_hint(errp, "Save it with a name that is no number.\n");
            return false;
        }
    }
    return true;
}

static DeviceState *as_device(Object *obj)
{
    return (DeviceState *)object_dynamic_cast(obj, TYPE_DEVICE);
}

/* Or what it is a part of */
static bool is_on_its_way_out(Object *obj)
{
    for (; obj; obj = obj->parent) {
        if (as_device(obj) && as_device(obj)->pending_deleted_event) {
            return true;
        }
    }
    return false;
}

/* @opaque: of bool, by whether it is on its way out */
static int note_unmigratable(Object *obj, void *opaque)
{
    DeviceState *dev = as_device(obj);
    const VMStateDescription *vmsd = dev && dev->realized ? qdev_get_vmsd(dev)
                                                          : NULL;

    if (vmsd && vmsd->unmigratable) {
        ((bool *)opaque)[is_on_its_way_out(obj)] = true;
    }
    return 0;
}

/*
 * QEMU asks the same when disks and RAM are gone; but then the system reset
 * has completed the removal of devices that the guest has not agreed to.
 */
static bool check_devices(Error **errp)
{
    ERRP_GUARD();
    bool found[] = { false, false };

    if (!qemu_savevm_state_blocked(errp)) {
        return true;
    }
    object_child_foreach_recursive(object_get_root(), note_unmigratable,
                                   found);
    if (found[true] && !found[false]) {
        error_free(*errp);
        *errp = NULL;
        return true;
    }
    error_prepend(errp, "Snapshots cannot be loaded, nothing has been "
                  "changed: ");
    error_append_hint(errp, "Unplug the device, then load the snapshot.\n");
    return false;
}

/* That of a migration of before; the load would be taken to have failed */
static void forget_error(void)
{
    MigrationState *s = migrate_get_current();

    QEMU_LOCK_GUARD(&s->error_mutex);
    g_clear_pointer(&s->error, error_free);
}

bool ram_reset_load_prepare(BlockDriverState *bs, const QEMUSnapshotInfo *sn,
                            Error **errp)
{
    ERRP_GUARD();
    int64_t start = now();

    if (!check_devices(errp)) {
        return false;
    }
    if (ram_reset_enabled() &&
        (!check_migration(errp) || !check_tag(bs, sn->name, errp) ||
         !ram_reset_check_layout(bs, sn, errp))) {
        return false;
    }
    load.active = true;
    load.last_section = false;
    load.tag = g_strdup(sn->name);
    load.sn = *sn;
    load.state_size = sn->vm_state_size;
    load.start = start;
    load.checked = now();
    trace_ram_reset_load_begin(load.tag);
    return true;
}

void ram_reset_load_reverted(void)
{
    forget_error();
    ram_reset_slots_change(true);
    load.reverted = now();
}

/* False if nothing has begun */
static bool load_template(BlockDriverState *bs)
{
    load.identity = ram_reset_template_identity(bs, &load.sn);
    if (!load.identity ||
        !ram_reset_template_find(load.identity, migrate_ram_is_ignored,
                                 &load.skip_to)) {
        return false;
    }
    load.from_template = ram_reset_template_load(migrate_ram_is_ignored);
    if (!load.from_template) {
        load.skip_to = 0;
        ram_reset_template_remove("it cannot be mapped");
    }
    return true;
}

void ram_reset_load_begin(BlockDriverState *bs)
{
    load.was_reset = now();
    load.bs = bs;
    if (ram_reset_rewind_wanted()) {
        load.blocker =
            g_strdup(ram_reset_snapshot_rewind_blocker(bs, &load.sn));
        if (!load.blocker) {
            ram_reset_rewind();
            load.rewound = true;
            load.skip_to = ram_reset_baseline_use();
            load.zeroed = now();
            return;
        }
        ram_reset_no_baseline("a whole load has begun, and has not succeeded");
    }
    ram_reset_template_close();
    if (ram_reset_templates_wanted() && load_template(bs)) {
        load.zeroed = now();
        return;
    }
    /* Pages of a mapped-ram snapshot are not records that we are told of */
    ram_reset_begin(migrate_ram_is_ignored, !migrate_mapped_ram(),
                    load.state_size);
    load.zeroed = now();
}

void ram_reset_do_load_page(RAMBlock *rb, ram_addr_t offset, int flags)
{
    RamResetPage what = RAM_RESET_PAGE_WRITE;

    if (flags & RAM_SAVE_FLAG_ZERO) {
        what = RAM_RESET_PAGE_ZERO;
    } else if (flags & RAM_SAVE_FLAG_XBZRLE) {
        what = RAM_RESET_PAGE_CHANGE;
    }
    ram_reset_page_loaded(rb, offset, what);
}

void ram_reset_do_load_zeros(QEMUFile *f, ram_addr_t addr)
{
    if (load.active) {
        ram_reset_take_zeros(f, load.bs, addr);
    }
}

/*
 * Whether nothing but RAM lies between RAM's section that ends before @from
 * and the one that begins before @to.  The switchover of a migration, which
 * means nothing here, is a command without data.
 */
static bool only_ram_between(int64_t from, int64_t to)
{
    uint8_t between[COMMAND];

    if (from < 0 || to != from + FOOTER + COMMAND + HEAD) {
        return from >= 0 && to == from + FOOTER + HEAD;
    }
    return bdrv_load_vmstate(load.bs, between, from + FOOTER, COMMAND) >= 0 &&
           between[0] == QEMU_VM_COMMAND && !lduw_be_p(between + 3);
}

static void load_all_the_same(void)
{
    if (load.rewound) {
        load.blocker = g_strdup("the VM state is not as it was");
    }
    load.rewound = load.from_template = false;
    load.skip_to = 0;
    ram_reset_template_close();
}

/*
 * The first section has no pages, only the list of blocks, and is loaded in
 * any case: after it comes what devices want to have loaded before RAM.
 */
bool ram_reset_load_rewound(QEMUFile *f)
{
    int64_t here;

    if (!load.active ||
        (!ram_reset_rewind_wanted() && !ram_reset_templates_wanted())) {
        return false;
    }
    load.f = f;
    if (!load.sections++) {
        return false;
    }
    if (load.skip_to) {
        load.skipped = load.sections == 2 &&
                       ram_reset_snapshot_skip(f, load.skip_to);
        if (load.sections == 2 && !load.skipped) {
            load_all_the_same();
        }
        return load.skipped;
    }
    here = ram_reset_file_position(f);
    if (load.sections > 2 && !only_ram_between(load.ram_end, here)) {
        here = -1;
    }
    load.ram_end = here;
    return false;
}

void ram_reset_load_section(uint8_t type)
{
    load.last_section = type == QEMU_VM_SECTION_END;
}

static void keep_loaded(void)
{
    int64_t ram_end = load.from_template ? load.skip_to : load.ram_end;

    if (!load.from_template && load.identity && ram_end > 0) {
        ram_reset_template_make(load.identity, ram_end, true,
                                migrate_ram_is_ignored);
    }
    if (ram_reset_rewind_wanted()) {
        ram_reset_baseline_of_load(load.bs, &load.sn, ram_end);
    }
}

void ram_reset_load_ram_done(int ret)
{
    bool last_section;

    if (!load.active) {
        return;
    }
    last_section = load.last_section || load.skipped;
    load.last_section = load.skipped = false;
    if (load.f && load.ram_end >= 0 && !load.skip_to) {
        load.ram_end = ram_reset_file_position(load.f);
    }
    if (last_section || ret) {
        int64_t before = now();

        ram_reset_complete_zeroing();
        load.completing = now() - before;
        load.completed = true;
    }
    if (ret) {
        return;
    }
    if (last_section && !load.rewound) {
        keep_loaded();
    }
    load.ram_loaded = now();
    if (last_section && ram_reset_verify_wanted()) {
        error_free(load.verify_err);
        load.verify_err = NULL;
        load.verified = ram_reset_check_content(load.bs, &load.verify_err);
    }
}

static uint64_t phase(int64_t from, int64_t to)
{
    return from && to ? to - from : 0;
}

bool ram_reset_load_end(int ret, Error **errp)
{
    RamResetLoadInfo *info;
    int64_t end = now();
    bool ok = true;

    if (!load.active) {
        return true;
    }
    ram_reset_slots_change(false);
    if (ret > 0) {
        error_setg(errp, "the VM state asks QEMU to end the load");
        ok = false;
    } else if (!ret && load.verify_err) {
        if (load.from_template || load.rewound) {
            ram_reset_template_remove("RAM that was taken from it is not what "
                                      "the snapshot has");
        }
        error_propagate(errp, g_steal_pointer(&load.verify_err));
        ok = false;
    } else if (!ret && !load.completed && ram_reset_enabled()) {
        error_setg(errp, "the VM state has no end of RAM, devices have been "
                   "loaded before it was what the snapshot has");
        ok = false;
    } else if (!ret && !load.verified && ram_reset_verify_wanted()) {
        error_setg(errp, "RAM cannot be verified: it was switched on in the "
                   "middle of the load");
        ok = false;
    }

    info = g_new0(RamResetLoadInfo, 1);
    info->tag = g_steal_pointer(&load.tag);
    info->success = ok && !ret;
    info->rewound = load.rewound;
    info->blocker = g_steal_pointer(&load.blocker);
    info->q_template = load.from_template ? ram_reset_template_path() : NULL;
    info->blocks = ram_reset_finish(info->success);
    info->phases = g_new0(RamResetPhases, 1);
    info->phases->check = phase(load.start, load.checked);
    info->phases->disk_revert = phase(load.checked, load.reverted);
    info->phases->system_reset = phase(load.reverted, load.was_reset);
    info->phases->ram_reset = phase(load.was_reset, load.zeroed) +
                              load.completing;
    info->phases->ram_load = phase(load.zeroed + load.completing,
                                   load.ram_loaded);
    info->phases->device_load = phase(load.ram_loaded, end);
    info->phases->total = end - load.start;
    trace_ram_reset_load_end(info->tag, ret, info->phases->total);

    loads += info->success;
    failed_loads += !info->success;
    rewinds += info->success && info->rewound;
    if (info->success) {
        whole_again(NULL);
    } else {
        note_part(info->tag);
    }
    if (!info->success && load.was_reset) {
        ram_reset_no_baseline("the last load has failed");
        ram_reset_template_close();
    }
    qapi_free_RamResetLoadInfo(last_load);
    last_load = info;

    error_free(load.verify_err);
    g_free(load.identity);
    memset(&load, 0, sizeof(load));
    return ok;
}

void ram_reset_query_loads(RamResetInfo *info)
{
    info->loads = loads;
    info->failed_loads = failed_loads;
    info->rewinds = rewinds;
    info->q_template = ram_reset_query_template();
    info->rewind = ram_reset_query_rewind();
    if (info->rewind) {
        info->rewind->tag = g_strdup(ram_reset_baseline_tag());
    }
    if (last_load) {
        info->last_load = QAPI_CLONE(RamResetLoadInfo, last_load);
    }
}
