/*
 * snapctl: a PCI device through which the guest saves and loads snapshots
 *
 * The registers are described in docs/specs/snapctl.rst.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "block/aio.h"
#include "block/snapshot.h"
#include "hw/misc/snapctl.h"
#include "hw/pci/msix.h"
#include "hw/pci/pci_device.h"
#include "hw/qdev-properties.h"
#include "migration/ram-reset.h"
#include "migration/snapshot.h"
#include "migration/vmstate.h"
#include "qapi/clone-visitor.h"
#include "qapi/error.h"
#include "qapi/qapi-commands-snapctl.h"
#include "qapi/qapi-events-snapctl.h"
#include "qapi/qapi-visit-snapctl.h"
#include "qemu/error-report.h"
#include "qemu/guest-random.h"
#include "qemu/main-loop.h"
#include "qemu/module.h"
#include "qemu/timer.h"
#include "qemu/units.h"
#include "system/cpus.h"
#include "system/hostmem.h"
#include "system/ram-reset-compat.h"
#include "system/replay.h"
#include "system/runstate.h"
#include "system/ram-reset/trace.h"

OBJECT_DECLARE_SIMPLE_TYPE(SnapctlState, SNAPCTL)

#define MAX_SLOTS       256
/* A guest must not be able to fill the host's log */
#define LOG_INTERVAL_NS (60 * NANOSECONDS_PER_SECOND)

struct SnapctlState {
    PCIDevice parent_obj;

    MemoryRegion regs;
    VMChangeStateEntry *vm_state_handler;
    QEMUBH *bh;

    /* properties */
    SnapctlAllow allow;
    char *slots;
    uint32_t min_interval;
    HostMemoryBackend *region;

    char **tags;
    uint32_t nr_tags;

    /* what a snapshot has of the device */
    uint32_t slot;
    uint32_t command;           /* pending, or 0 */
    uint32_t status;
    uint32_t error;
    uint64_t generation;
    uint64_t load_ns;
    uint8_t random[SNAPCTL_RANDOM_SIZE];
    bool irq_due;

    /* of the load that is being done */
    bool loading;
    uint64_t former_generation;
    int64_t stopped_ns;         /* when the guest was stopped for it, or 0 */

    bool used;
    int64_t used_ns;            /* when the last command ended */
    uint64_t saves, loads, failures, refused;
    SnapctlOutcome *last;
    int64_t logged_ns;          /* when a failure was, or 0 */
    uint64_t unlogged;          /* failures since then */
};

static bool is_allowed(const SnapctlState *s, uint32_t command)
{
    SnapctlAllow needed = command == SNAPCTL_COMMAND_SAVE ? SNAPCTL_ALLOW_SAVE
                                                          : SNAPCTL_ALLOW_LOAD;

    return s->allow == SNAPCTL_ALLOW_BOTH || s->allow == needed;
}

static bool is_too_soon(const SnapctlState *s)
{
    /* the host's clock: a load takes the guest's back */
    return s->used &&
           get_clock() - s->used_ns < (int64_t)s->min_interval * SCALE_MS;
}

/* An error code, or SNAPCTL_ERROR_NONE */
static uint32_t check(const SnapctlState *s, uint32_t command)
{
    if (command != SNAPCTL_COMMAND_SAVE && command != SNAPCTL_COMMAND_LOAD) {
        return SNAPCTL_ERROR_COMMAND;
    }
    if (!is_allowed(s, command)) {
        return SNAPCTL_ERROR_DENIED;
    }
    if (s->slot >= s->nr_tags) {
        return SNAPCTL_ERROR_SLOT;
    }
    if (is_too_soon(s)) {
        return SNAPCTL_ERROR_TOO_SOON;
    }
    return SNAPCTL_ERROR_NONE;
}

static void finish(SnapctlState *s, uint32_t status, uint32_t error)
{
    s->command = 0;
    s->status = status;
    s->error = error;
}

static void refuse(SnapctlState *s, uint32_t error)
{
    trace_snapctl_refused(s->slot, error);
    s->refused++;
    finish(s, SNAPCTL_STATUS_REFUSED, error);
}

static void write_command(SnapctlState *s, uint32_t command)
{
    uint32_t error = check(s, command);

    if (error) {
        refuse(s, error);
        return;
    }
    trace_snapctl_accepted(s->slot, command);
    s->command = command;
    s->status = SNAPCTL_STATUS_PENDING;
    s->error = SNAPCTL_ERROR_NONE;
    /* It would only wait for the outcome, and hold up the main loop by that */
    cpu_stop_current();
    qemu_bh_schedule(s->bh);
}

/*
 * What else has been asked for is for the guest as it is now, so it comes first;
 * the main loop does it in its next turn.
 */
static bool must_wait(void)
{
    return qemu_shutdown_requested_get() != SHUTDOWN_CAUSE_NONE ||
           qemu_reset_requested_get() != SHUTDOWN_CAUSE_NONE;
}

/* QEMU says of a failure that it is one, and mostly why */
static void fail(SnapctlState *s, Error **errp)
{
    finish(s, SNAPCTL_STATUS_FAILED, SNAPCTL_ERROR_HOST);
    if (!*errp) {
        error_setg(errp, "QEMU gives no reason");
    }
}

static bool load(SnapctlState *s, const char *tag, Error **errp)
{
    ERRP_GUARD();
    RunState state = runstate_get();

    vm_stop(RUN_STATE_RESTORE_VM);
    if (must_wait()) {
        vm_start();
        return false;
    }
    if (!load_snapshot(tag, NULL, false, NULL, errp)) {
        fail(s, errp);
    }
    /* also one whose load was refused before it had changed anything */
    if (ram_reset_vm_is_whole(NULL)) {
        load_snapshot_resume(state);
    }
    return true;
}

static void save(SnapctlState *s, const char *tag, Error **errp)
{
    ERRP_GUARD();

    if (save_snapshot(tag, true, NULL, false, NULL, errp)) {
        finish(s, SNAPCTL_STATUS_SAVED, SNAPCTL_ERROR_NONE);
    } else {
        fail(s, errp);
        resume_all_vcpus();
    }
}

static void send_event(const SnapctlState *s, const char *path)
{
    g_autoptr(SnapctlCompleted) data = g_new0(SnapctlCompleted, 1);

    data->qom_path = g_strdup(path);
    QAPI_CLONE_MEMBERS(SnapctlOutcome, qapi_SnapctlCompleted_base(data),
                       s->last);
    qapi_event_send_snapctl_completed(data);
}

/* Takes @err */
static void log_failure(SnapctlState *s, Error *err)
{
    int64_t now = get_clock();

    if (s->logged_ns && now - s->logged_ns < LOG_INTERVAL_NS) {
        s->unlogged++;
        error_free(err);
        return;
    }
    if (s->unlogged) {
        error_append_hint(&err, "%" PRIu64 " more have failed since the last "
                          "message; query-snapctl counts them.\n",
                          s->unlogged);
    }
    error_report_err(err);
    s->logged_ns = now;
    s->unlogged = 0;
}

/* Takes @err, which is NULL if the command has been done */
static void report(SnapctlState *s, const char *path, uint32_t command,
                   uint32_t slot, int64_t time_ns, Error *err)
{
    SnapctlOutcome *last = g_new0(SnapctlOutcome, 1);

    last->command = command == SNAPCTL_COMMAND_SAVE ? SNAPCTL_ACTION_SAVE
                                                    : SNAPCTL_ACTION_LOAD;
    last->slot = slot;
    last->tag = g_strdup(s->tags[slot]);
    last->success = !err;
    last->time_ns = time_ns;
    last->generation = s->generation;
    if (err) {
        s->failures++;
        last->error = g_strdup(error_get_pretty(err));
        error_prepend(&err, "snapctl: the guest's %s of snapshot '%s': ",
                      SnapctlAction_str(last->command), last->tag);
        log_failure(s, err);
    } else if (last->command == SNAPCTL_ACTION_SAVE) {
        s->saves++;
    } else {
        s->loads++;
    }
    trace_snapctl_completed(slot, command, last->success, time_ns);
    qapi_free_SnapctlOutcome(s->last);
    s->last = last;
    send_event(s, path);
}

static bool is_missing(const char *tag)
{
    /* without any disk, all of them have it */
    return !bdrv_all_find_vmstate_bs(NULL, false, NULL, NULL) ||
           bdrv_all_has_snapshot(tag, false, NULL, NULL) == 0;
}

/* An error code, or SNAPCTL_ERROR_NONE */
static uint32_t check_now(const SnapctlState *s)
{
    /* again: a command that has been migrated was another host's to check */
    uint32_t error = check(s, s->command);

    if (error) {
        return error;
    }
    if (!ram_reset_migration_is_over()) {
        return SNAPCTL_ERROR_BUSY;
    }
    if (s->command == SNAPCTL_COMMAND_LOAD && is_missing(s->tags[s->slot])) {
        return SNAPCTL_ERROR_EMPTY;
    }
    return SNAPCTL_ERROR_NONE;
}

static void execute(SnapctlState *s)
{
    /* a load may unplug the device */
    g_autofree char *path = object_get_canonical_path(OBJECT(s));
    uint32_t command = s->command, slot = s->slot;
    uint32_t error = check_now(s);
    int64_t begin = get_clock();
    Error *err = NULL;

    if (error) {
        refuse(s, error);
        resume_all_vcpus();
    } else if (command == SNAPCTL_COMMAND_SAVE) {
        save(s, s->tags[slot], &err);
        report(s, path, command, slot, get_clock() - begin, err);
    } else if (load(s, s->tags[slot], &err)) {
        report(s, path, command, slot, get_clock() - begin, err);
    } else {
        qemu_bh_schedule(s->bh);
        return;
    }
    s->used = true;
    s->used_ns = get_clock();
}

/* Outside of the vCPU's exit, and not in the middle of other work of QEMU's */
static void command_bh(void *opaque)
{
    SnapctlState *s = opaque;
    RunState requested;

    /* a stopped guest's command waits until it goes on */
    if (!s->command || !runstate_is_running()) {
        resume_all_vcpus();
    } else if (must_wait()) {
        qemu_bh_schedule(s->bh);
    } else if (qemu_vmstop_requested(&requested)) {
        vm_stop(requested);
    } else {
        object_ref(OBJECT(s));
        execute(s);
        object_unref(OBJECT(s));
    }
}

/* The vCPU that wrote a command, which nobody is left to do */
static void resume_bh(void *opaque)
{
    resume_all_vcpus();
}

static void vm_state_changed(void *opaque, bool running, RunState state)
{
    SnapctlState *s = opaque;

    if (!running) {
        s->stopped_ns = state == RUN_STATE_RESTORE_VM ? get_clock() : 0;
        return;
    }
    if (s->irq_due) {
        if (s->stopped_ns) {
            s->load_ns = get_clock() - s->stopped_ns;
        }
        s->irq_due = false;
        if (msix_enabled(PCI_DEVICE(s))) {
            msix_notify(PCI_DEVICE(s), 0);
        }
    }
    s->stopped_ns = 0;
    if (s->command) {
        qemu_bh_schedule(s->bh);
    }
}

static uint32_t features(SnapctlState *s)
{
    return (is_allowed(s, SNAPCTL_COMMAND_SAVE) ? SNAPCTL_FEATURE_SAVE : 0) |
           (is_allowed(s, SNAPCTL_COMMAND_LOAD) ? SNAPCTL_FEATURE_LOAD : 0) |
           (s->region ? SNAPCTL_FEATURE_REGION : 0) |
           (msix_present(PCI_DEVICE(s)) ? SNAPCTL_FEATURE_MSIX : 0);
}

static uint64_t regs_read(void *opaque, hwaddr addr, unsigned size)
{
    SnapctlState *s = opaque;

    switch (addr) {
    case SNAPCTL_MAGIC:
        return SNAPCTL_MAGIC_VALUE;
    case SNAPCTL_VERSION:
        return SNAPCTL_VERSION_VALUE;
    case SNAPCTL_FEATURES:
        return features(s);
    case SNAPCTL_SLOTS:
        return s->nr_tags;
    case SNAPCTL_SLOT:
        return s->slot;
    case SNAPCTL_STATUS:
        return s->status;
    case SNAPCTL_ERROR:
        return s->error;
    case SNAPCTL_GENERATION:
        return extract64(s->generation, 0, 32);
    case SNAPCTL_GENERATION + 4:
        return extract64(s->generation, 32, 32);
    case SNAPCTL_LOAD_NS:
        return extract64(s->load_ns, 0, 32);
    case SNAPCTL_LOAD_NS + 4:
        return extract64(s->load_ns, 32, 32);
    case SNAPCTL_MIN_INTERVAL:
        return s->min_interval;
    case SNAPCTL_RANDOM ... SNAPCTL_RANDOM + SNAPCTL_RANDOM_SIZE - 1:
        return ldl_le_p(s->random + addr - SNAPCTL_RANDOM);
    default:
        return 0;
    }
}

static void regs_write(void *opaque, hwaddr addr, uint64_t value,
                       unsigned size)
{
    SnapctlState *s = opaque;

    if (addr != SNAPCTL_SLOT && addr != SNAPCTL_COMMAND) {
        return;
    }
    if (s->command) {
        s->refused += addr == SNAPCTL_COMMAND;
    } else if (addr == SNAPCTL_SLOT) {
        s->slot = value;
    } else {
        write_command(s, value);
    }
}

static const MemoryRegionOps regs_ops = {
    .read = regs_read,
    .write = regs_write,
    .endianness = DEVICE_LITTLE_ENDIAN,
    .valid.min_access_size = 4,
    .valid.max_access_size = 8,
    .impl.min_access_size = 4,
    .impl.max_access_size = 4,
};

static void snapctl_reset_enter(Object *obj, ResetType type)
{
    SnapctlState *s = SNAPCTL(obj);

    s->loading = type == RESET_TYPE_SNAPSHOT_LOAD;
    s->slot = 0;
    finish(s, SNAPCTL_STATUS_IDLE, SNAPCTL_ERROR_NONE);
}

static int snapctl_pre_load(void *opaque)
{
    SnapctlState *s = opaque;

    s->former_generation = s->generation;
    return 0;
}

static int snapctl_post_load(void *opaque, int version_id)
{
    SnapctlState *s = opaque;

    if (!s->loading) {
        /* migrated: the guest goes on where it was */
        return 0;
    }
    s->loading = false;
    finish(s, SNAPCTL_STATUS_LOADED, SNAPCTL_ERROR_NONE);
    s->generation = MAX(s->generation, s->former_generation) + 1;
    s->load_ns = 0;
    qemu_guest_getrandom_nofail(s->random, sizeof(s->random));
    s->irq_due = true;
    return 0;
}

static const VMStateDescription snapctl_vmstate = {
    .name = "snapctl",
    .version_id = 1,
    .minimum_version_id = 1,
    .pre_load = snapctl_pre_load,
    .post_load = snapctl_post_load,
    .fields = (const VMStateField[]) {
        VMSTATE_PCI_DEVICE(parent_obj, SnapctlState),
        VMSTATE_MSIX(parent_obj, SnapctlState),
        VMSTATE_UINT32(slot, SnapctlState),
        VMSTATE_UINT32(command, SnapctlState),
        VMSTATE_UINT32(status, SnapctlState),
        VMSTATE_UINT32(error, SnapctlState),
        VMSTATE_UINT64(generation, SnapctlState),
        VMSTATE_UINT64(load_ns, SnapctlState),
        VMSTATE_UINT8_ARRAY(random, SnapctlState, SNAPCTL_RANDOM_SIZE),
        VMSTATE_BOOL(irq_due, SnapctlState),
        VMSTATE_END_OF_LIST()
    },
};

/* QEMU looks for a snapshot with that id before one with that name */
static bool is_number(const char *tag)
{
    return strspn(tag, "0123456789") == strlen(tag);
}

static bool parse_slots(SnapctlState *s, Error **errp)
{
    g_strfreev(s->tags);
    s->tags = g_strsplit(s->slots ?: "", ":", -1);
    s->nr_tags = g_strv_length(s->tags);
    if (s->nr_tags > MAX_SLOTS) {
        error_setg(errp, "slots= has %" PRIu32 " names, the most is %d",
                   s->nr_tags, MAX_SLOTS);
        return false;
    }
    for (uint32_t i = 0; i < s->nr_tags; i++) {
        if (!*s->tags[i] ||
            strlen(s->tags[i]) >= sizeof_field(QEMUSnapshotInfo, name)) {
            error_setg(errp, "the name '%s' of slot %" PRIu32 " in slots= "
                       "does not have 1 to %zu bytes", s->tags[i], i,
                       sizeof_field(QEMUSnapshotInfo, name) - 1);
            return false;
        }
        if (is_number(s->tags[i])) {
            error_setg(errp, "the name '%s' of slot %" PRIu32 " in slots= can "
                       "be another snapshot's id; choose one that is no number",
                       s->tags[i], i);
            return false;
        }
    }
    return true;
}

static bool check_region(SnapctlState *s, Error **errp)
{
    const char *id;
    uint64_t size;

    if (!s->region) {
        return true;
    }
    id = object_get_canonical_path_component(OBJECT(s->region));
    if (host_memory_backend_is_mapped(s->region)) {
        error_setg(errp, "memdev=%s is in use; give the device one of its own",
                   id);
        return false;
    }
    size = memory_region_size(host_memory_backend_get_memory(s->region));
    if (!is_power_of_2(size) || size < 4 * KiB) {
        error_setg(errp, "memdev=%s has %" PRIu64 " bytes, but a PCI device "
                   "needs a power of two, and 4 KiB or more", id, size);
        return false;
    }
    return true;
}

static SnapctlState *find_snapctl(bool *ambiguous)
{
    Object *o = object_resolve_path_type("", TYPE_SNAPCTL, ambiguous);

    return o ? SNAPCTL(o) : NULL;
}

static void snapctl_realize(PCIDevice *pci_dev, Error **errp)
{
    SnapctlState *s = SNAPCTL(pci_dev);
    bool ambiguous;

    if (replay_mode != REPLAY_MODE_NONE) {
        error_setg(errp, "snapctl does not work with record/replay");
        return;
    }
    find_snapctl(&ambiguous);
    if (ambiguous) {
        error_setg(errp, "there can be one snapctl device only");
        return;
    }
    if (!check_region(s, errp) || !parse_slots(s, errp)) {
        return;
    }
    if (msix_init_exclusive_bar(pci_dev, 1, SNAPCTL_MSIX_BAR, errp) < 0) {
        return;
    }
    msix_vector_use(pci_dev, 0);

    memory_region_init_io(&s->regs, OBJECT(s), &regs_ops, s, "snapctl-regs",
                          SNAPCTL_REGS_SIZE);
    pci_register_bar(pci_dev, SNAPCTL_REGS_BAR, PCI_BASE_ADDRESS_SPACE_MEMORY,
                     &s->regs);
    if (s->region) {
        /* not registered with vmstate: loads and migration leave it alone */
        host_memory_backend_set_mapped(s->region, true);
        pci_register_bar(pci_dev, SNAPCTL_REGION_BAR,
                         PCI_BASE_ADDRESS_SPACE_MEMORY |
                         PCI_BASE_ADDRESS_MEM_PREFETCH |
                         PCI_BASE_ADDRESS_MEM_TYPE_64,
                         host_memory_backend_get_memory(s->region));
    }
    /*
     * Other contexts run their bottom halves also while a snapshot is being
     * saved or loaded.  No guard: until all vCPUs have been stopped, they may
     * read registers.
     */
    s->bh = aio_bh_new_guarded(iohandler_get_aio_context(), command_bh, s,
                               NULL);
    s->vm_state_handler = qdev_add_vm_change_state_handler(
        DEVICE(s), vm_state_changed, s);
}

static void snapctl_exit(PCIDevice *pci_dev)
{
    SnapctlState *s = SNAPCTL(pci_dev);

    qemu_del_vm_change_state_handler(s->vm_state_handler);
    qemu_bh_delete(s->bh);
    if (s->command) {
        aio_bh_schedule_oneshot(iohandler_get_aio_context(), resume_bh, NULL);
    }
    if (s->region) {
        host_memory_backend_set_mapped(s->region, false);
    }
    msix_uninit_exclusive_bar(pci_dev);
}

static void snapctl_finalize(Object *obj)
{
    SnapctlState *s = SNAPCTL(obj);

    g_strfreev(s->tags);
    qapi_free_SnapctlOutcome(s->last);
}

SnapctlInfo *qmp_query_snapctl(Error **errp)
{
    SnapctlState *s = find_snapctl(NULL);
    SnapctlInfo *info;
    strList **tail;

    if (!s || !qdev_is_realized(DEVICE(s))) {
        error_set(errp, ERROR_CLASS_DEVICE_NOT_FOUND,
                  "there is no snapctl device");
        return NULL;
    }
    info = g_new0(SnapctlInfo, 1);
    info->qom_path = object_get_canonical_path(OBJECT(s));
    info->allow = s->allow;
    tail = &info->slots;
    for (uint32_t i = 0; i < s->nr_tags; i++) {
        QAPI_LIST_APPEND(tail, g_strdup(s->tags[i]));
    }
    info->min_interval = s->min_interval;
    if (s->region) {
        info->has_region_size = true;
        info->region_size = memory_region_size(
            host_memory_backend_get_memory(s->region));
    }
    info->generation = s->generation;
    info->pending = s->command;
    info->saves = s->saves;
    info->loads = s->loads;
    info->failures = s->failures;
    info->refused = s->refused;
    info->last = s->last ? QAPI_CLONE(SnapctlOutcome, s->last) : NULL;
    return info;
}

static int get_allow(Object *obj, Error **errp)
{
    return SNAPCTL(obj)->allow;
}

static void set_allow(Object *obj, int value, Error **errp)
{
    if (qdev_is_realized(DEVICE(obj))) {
        error_setg(errp, "allow= cannot be changed while the guest has the "
                   "device");
        return;
    }
    SNAPCTL(obj)->allow = value;
}

static const Property snapctl_properties[] = {
    DEFINE_PROP_STRING("slots", SnapctlState, slots),
    DEFINE_PROP_UINT32("min-interval", SnapctlState, min_interval, 0),
    DEFINE_PROP_LINK("memdev", SnapctlState, region, TYPE_MEMORY_BACKEND,
                     HostMemoryBackend *),
};

static void snapctl_instance_init(Object *obj)
{
    SNAPCTL(obj)->allow = SNAPCTL_ALLOW_LOAD;
}

static void snapctl_class_init(ObjectClass *klass, RamResetClassData *data)
{
    DeviceClass *dc = DEVICE_CLASS(klass);
    PCIDeviceClass *pc = PCI_DEVICE_CLASS(klass);
    ResettableClass *rc = RESETTABLE_CLASS(klass);

    pc->realize = snapctl_realize;
    pc->exit = snapctl_exit;
    pc->vendor_id = SNAPCTL_PCI_VENDOR_ID;
    pc->device_id = SNAPCTL_PCI_DEVICE_ID;
    pc->revision = 1;
    pc->class_id = PCI_CLASS_SYSTEM_OTHER;
    rc->phases.enter = snapctl_reset_enter;
    dc->desc = "Lets the guest save and load snapshots";
    dc->vmsd = &snapctl_vmstate;
    device_class_set_props(dc, snapctl_properties);
    set_bit(DEVICE_CATEGORY_MISC, dc->categories);

    object_class_property_add_enum(klass, "allow", "SnapctlAllow",
                                   &SnapctlAllow_lookup, get_allow, set_allow);
    object_class_property_set_description(klass, "allow",
        "What the guest may do: none, save, load, both (default: load)");
    object_class_property_set_description(klass, "slots",
        "Names of the snapshots, separated by colons; the first is slot 0");
    object_class_property_set_description(klass, "min-interval",
        "Milliseconds from the end of a command until the next is taken");
    object_class_property_set_description(klass, "memdev",
        "Memory backend of the region that loads do not change");
}

static const TypeInfo snapctl_info = {
    .name = TYPE_SNAPCTL,
    .parent = TYPE_PCI_DEVICE,
    .instance_size = sizeof(SnapctlState),
    .instance_init = snapctl_instance_init,
    .instance_finalize = snapctl_finalize,
    .class_init = snapctl_class_init,
    .interfaces = (InterfaceInfo[]) {
        { INTERFACE_CONVENTIONAL_PCI_DEVICE },
        { },
    },
};

static void snapctl_register_types(void)
{
    type_register_static(&snapctl_info);
}

type_init(snapctl_register_types)
