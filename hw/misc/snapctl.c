/*
 * snapctl: a PCI device through which the guest saves and loads snapshots
 *
 * The registers are described in docs/specs/snapctl.rst.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "block/snapshot.h"
#include "hw/misc/snapctl-internal.h"
#include "hw/pci/msix.h"
#include "migration/vmstate.h"
#include "qapi/error.h"
#include "qemu/guest-random.h"
#include "qemu/module.h"
#include "qemu/timer.h"
#include "qemu/units.h"
#include "system/ram-reset-compat.h"
#include "system/replay.h"
#include "system/runstate.h"

#define MAX_SLOTS       256

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
    snapctl_go_on(s);
}

static uint32_t device_features(SnapctlState *s)
{
    bool may_save = snapctl_is_allowed(s, SNAPCTL_COMMAND_SAVE);
    bool may_load = snapctl_is_allowed(s, SNAPCTL_COMMAND_LOAD);

    return (may_save ? SNAPCTL_FEATURE_SAVE : 0) |
           (may_load ? SNAPCTL_FEATURE_LOAD : 0) |
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
        return device_features(s);
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
        snapctl_begin(s, value);
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
    snapctl_finish(s, SNAPCTL_STATUS_IDLE, SNAPCTL_ERROR_NONE);
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
        /* migrated: the guest continues */
        return 0;
    }
    s->loading = false;
    snapctl_finish(s, SNAPCTL_STATUS_LOADED, SNAPCTL_ERROR_NONE);
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

/* QEMU searches a snapshot by id first, then by name */
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
                       "be another snapshot's id; choose one that is not a "
                       "number", s->tags[i], i);
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

static void snapctl_realize(PCIDevice *pci_dev, Error **errp)
{
    SnapctlState *s = SNAPCTL(pci_dev);
    bool ambiguous;

    if (replay_mode != REPLAY_MODE_NONE) {
        error_setg(errp, "snapctl does not work with record/replay");
        return;
    }
    snapctl_find(&ambiguous);
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
    snapctl_command_init(s);
    s->vm_state_handler = ram_reset_add_vm_change_state_handler(
        DEVICE(s), vm_state_changed, s);
}

static void snapctl_exit(PCIDevice *pci_dev)
{
    SnapctlState *s = SNAPCTL(pci_dev);

    qemu_del_vm_change_state_handler(s->vm_state_handler);
    snapctl_command_exit(s);
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

static int get_save_kind(Object *obj, Error **errp)
{
    return SNAPCTL(obj)->save_kind;
}

static void set_save_kind(Object *obj, int value, Error **errp)
{
    SNAPCTL(obj)->save_kind = value;
}

static const Property snapctl_properties[] = {
    DEFINE_PROP_STRING("slots", SnapctlState, slots),
    DEFINE_PROP_SIZE("memory-limit", SnapctlState, memory_limit, 0),
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
    object_class_property_add_enum(klass, "save-kind", "RamResetSaveKind",
                                   &RamResetSaveKind_lookup, get_save_kind,
                                   set_save_kind);
    object_class_property_set_description(klass, "save-kind",
        "Where the guest's saves go: image or memory (default: image)");
    object_class_property_set_description(klass, "memory-limit",
        "Bytes that snapshots of all slots may have in memory (default: 0, any)");
    object_class_property_set_description(klass, "min-interval",
        "Milliseconds from the end of a command until the next one may begin");
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
