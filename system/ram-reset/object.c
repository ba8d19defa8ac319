/*
 * RAM reset: the abstract class and its properties
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qapi/error.h"
#include "qapi/util.h"
#include "qapi/visitor.h"
#include "qom/object_interfaces.h"
#include "hw/acpi/vmgenid.h"
#include "system/system.h"
#include "system/ram-reset/block/block.h"
#include "system/ram-reset/disks.h"
#include "system/ram-reset/options.h"
#include "system/ram-reset/prim/prim.h"
#include "system/ram-reset/prim/trusted-file.h"
#include "system/ram-reset/report.h"

#define MAX_THREADS 64

/* Two objects must not cover the same blocks */
static bool check_coverage(RamReset *rr, Error **errp)
{
    ERRP_GUARD();
    g_autoptr(GPtrArray) objs = ram_reset_objects();

    for (unsigned i = 0; i < objs->len; i++) {
        RamReset *other = RAM_RESET(objs->pdata[i]);

        if (other == rr || g_strcmp0(other->memdev, rr->memdev)) {
            continue;
        }
        if (rr->memdev) {
            error_setg(errp, "RAM reset objects '%s' and '%s' both cover "
                       "memory backend '%s'", ram_reset_id(other),
                       ram_reset_id(rr), rr->memdev);
            error_append_hint(errp, "Remove one of them.\n");
        } else {
            error_setg(errp, "RAM reset objects '%s' and '%s' both cover "
                       "every RAM block", ram_reset_id(other),
                       ram_reset_id(rr));
            error_append_hint(errp, "Give at least one of them a memdev=.\n");
        }
        return false;
    }
    return true;
}

static bool check_memdev(RamReset *rr, Error **errp)
{
    ERRP_GUARD();

    if (rr->memdev && !ram_reset_check_memdev(rr->memdev, errp)) {
        ram_reset_error_prepend(rr, errp);
        return false;
    }
    return true;
}

/* A vmgenid device exists when the machine is made, or never */
static bool check_vmgenid(RamReset *rr, bool wanted, Error **errp)
{
    ERRP_GUARD();

    if (wanted && !find_vmgenid_dev()) {
        ram_reset_error(rr, errp, "new-vmgenid=on needs a vmgenid device");
        error_append_hint(errp, "Start QEMU with -device vmgenid.\n");
        return false;
    }
    return true;
}

static bool check_properties(RamReset *rr, Error **errp)
{
    RamResetClass *rrc = RAM_RESET_GET_CLASS(rr);

    return !rrc->check || rrc->check(rr, errp);
}

static bool open_template_dir(RamReset *rr, Error **errp)
{
    ERRP_GUARD();
    g_autofree char *reason = NULL;

    rr->template_fd = open(rr->template_dir,
                           O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    reason = rr->template_fd < 0 ? g_strdup(strerror(errno))
                                 : trusted_dir_refusal(rr->template_fd);
    if (!reason) {
        return true;
    }
    ram_reset_error(rr, errp, "template-dir '%s' cannot be used: %s",
                    rr->template_dir, reason);
    error_append_hint(errp, "Make a directory that belongs to the user that "
                      "QEMU runs as, with mode 0700.\n");
    if (rr->template_fd >= 0) {
        close(rr->template_fd);
        rr->template_fd = -1;
    }
    return false;
}

/* All objects with a template-dir= must have the same one */
static bool check_template_dir(RamReset *rr, Error **errp)
{
    ERRP_GUARD();
    RamReset *other = ram_reset_template_object();

    if (!rr->template_dir) {
        return true;
    }
    if (!open_template_dir(rr, errp)) {
        return false;
    }
    if (other && !prim_is_same_file(other->template_fd, rr->template_fd)) {
        error_setg(errp, "RAM reset objects '%s' and '%s' have different "
                   "template-dir=, '%s' and '%s'", ram_reset_id(other),
                   ram_reset_id(rr), other->template_dir, rr->template_dir);
        error_append_hint(errp, "A template has all RAM: give one object a "
                          "template-dir=, or the same one to all.\n");
        return false;
    }
    return true;
}

/* QEMU makes memory backends, and uses them as RAM, after these objects */
static void ram_reset_machine_done(Notifier *notifier, void *data)
{
    RamReset *rr = container_of(notifier, RamReset, machine_done);

    check_memdev(rr, &error_fatal);
    check_properties(rr, &error_fatal);
    check_vmgenid(rr, rr->new_vmgenid, &error_fatal);
    ram_reset_check_keep_disks(rr, &error_fatal);
    if (RAM_RESET_GET_CLASS(rr)->machine_ready) {
        RAM_RESET_GET_CLASS(rr)->machine_ready(rr);
    }
}

static void ram_reset_complete(UserCreatable *uc, Error **errp)
{
    ERRP_GUARD();
    RamReset *rr = RAM_RESET(uc);

    if (!check_coverage(rr, errp) || !check_properties(rr, errp) ||
        !check_template_dir(rr, errp)) {
        return;
    }
    if (phase_check(PHASE_MACHINE_READY)) {
        if ((!RAM_RESET_GET_CLASS(rr)->memdev_comes_later &&
             !check_memdev(rr, errp)) ||
            !check_vmgenid(rr, rr->new_vmgenid, errp) ||
            !ram_reset_check_keep_disks(rr, errp)) {
            return;
        }
        if (RAM_RESET_GET_CLASS(rr)->machine_ready) {
            RAM_RESET_GET_CLASS(rr)->machine_ready(rr);
        }
    } else {
        rr->machine_done.notify = ram_reset_machine_done;
        qemu_add_machine_init_done_notifier(&rr->machine_done);
    }
    rr->completed = true;
    ram_reset_warn_of_idle_limits(rr);
    ram_reset_options_changed(rr, rr->rewind);
}

/* Whether it is too late to change a property */
static bool is_fixed(RamReset *rr, const char *name, Error **errp)
{
    ERRP_GUARD();

    if (rr->completed) {
        error_setg(errp, "cannot change property '%s' of %s '%s'", name,
                   object_get_typename(OBJECT(rr)), ram_reset_id(rr));
        error_append_hint(errp, "Delete the object and add it again.\n");
    }
    return rr->completed;
}

static char *ram_reset_get_memdev(Object *obj, Error **errp)
{
    return g_strdup(RAM_RESET(obj)->memdev);
}

static void ram_reset_set_memdev(Object *obj, const char *value, Error **errp)
{
    RamReset *rr = RAM_RESET(obj);

    if (!is_fixed(rr, "memdev", errp)) {
        g_free(rr->memdev);
        rr->memdev = g_strdup(value);
    }
}

static char *ram_reset_get_template_dir(Object *obj, Error **errp)
{
    return g_strdup(RAM_RESET(obj)->template_dir);
}

static void ram_reset_set_template_dir(Object *obj, const char *value,
                                       Error **errp)
{
    RamReset *rr = RAM_RESET(obj);

    if (!is_fixed(rr, "template-dir", errp)) {
        g_free(rr->template_dir);
        rr->template_dir = g_strdup(value);
    }
}

static void ram_reset_get_template_limit(Object *obj, Visitor *v,
                                         const char *name, void *opaque,
                                         Error **errp)
{
    visit_type_size(v, name, &RAM_RESET(obj)->template_limit, errp);
}

static void ram_reset_set_template_limit(Object *obj, Visitor *v,
                                         const char *name, void *opaque,
                                         Error **errp)
{
    visit_type_size(v, name, &RAM_RESET(obj)->template_limit, errp);
}

static bool ram_reset_get_verify(Object *obj, Error **errp)
{
    return RAM_RESET(obj)->verify;
}

static void ram_reset_set_verify(Object *obj, bool value, Error **errp)
{
    RAM_RESET(obj)->verify = value;
}

static bool ram_reset_get_rewind(Object *obj, Error **errp)
{
    return RAM_RESET(obj)->rewind;
}

static void ram_reset_set_rewind(Object *obj, bool value, Error **errp)
{
    RamReset *rr = RAM_RESET(obj);
    int more = value - rr->rewind;

    rr->rewind = value;
    if (rr->completed) {
        ram_reset_options_changed(rr, more);
    }
}

static void ram_reset_get_rewind_limit(Object *obj, Visitor *v,
                                       const char *name, void *opaque,
                                       Error **errp)
{
    visit_type_size(v, name, &RAM_RESET(obj)->rewind_limit, errp);
}

static void ram_reset_set_rewind_limit(Object *obj, Visitor *v,
                                       const char *name, void *opaque,
                                       Error **errp)
{
    RamReset *rr = RAM_RESET(obj);

    if (visit_type_size(v, name, &rr->rewind_limit, errp) && rr->completed) {
        ram_reset_options_changed(rr, 0);
    }
}

static bool ram_reset_get_new_vmgenid(Object *obj, Error **errp)
{
    return RAM_RESET(obj)->new_vmgenid;
}

static void ram_reset_set_new_vmgenid(Object *obj, bool value, Error **errp)
{
    RamReset *rr = RAM_RESET(obj);

    if (!rr->completed || !phase_check(PHASE_MACHINE_READY) ||
        check_vmgenid(rr, value, errp)) {
        rr->new_vmgenid = value;
    }
}

static void ram_reset_get_threads(Object *obj, Visitor *v, const char *name,
                                  void *opaque, Error **errp)
{
    visit_type_uint32(v, name, &RAM_RESET(obj)->threads, errp);
}

static void ram_reset_set_threads(Object *obj, Visitor *v, const char *name,
                                  void *opaque, Error **errp)
{
    uint32_t value;

    if (!visit_type_uint32(v, name, &value, errp)) {
        return;
    }
    if (value > MAX_THREADS) {
        error_setg(errp, "property '%s' of %s takes 0 to %d, not %" PRIu32,
                   name, object_get_typename(obj), MAX_THREADS, value);
        return;
    }
    RAM_RESET(obj)->threads = value;
}

static void ram_reset_instance_init(Object *obj)
{
    RAM_RESET(obj)->template_fd = -1;
}

static void ram_reset_instance_finalize(Object *obj)
{
    RamReset *rr = RAM_RESET(obj);

    if (rr->machine_done.notify) {
        qemu_remove_machine_init_done_notifier(&rr->machine_done);
    }
    g_free(rr->memdev);
    g_free(rr->template_dir);
    qapi_free_strList(rr->keep_disks);
    if (rr->template_fd >= 0) {
        close(rr->template_fd);
    }
    if (rr->completed) {
        ram_reset_options_changed(NULL, -rr->rewind);
    }
}

static void ram_reset_class_init(ObjectClass *oc, RamResetClassData *data)
{
    USER_CREATABLE_CLASS(oc)->complete = ram_reset_complete;

    object_class_property_add_str(oc, "memdev", ram_reset_get_memdev,
                                  ram_reset_set_memdev);
    object_class_property_set_description(oc, "memdev",
        "id of the memory backend to reset; all RAM if not given");
    object_class_property_add_bool(oc, "verify", ram_reset_get_verify,
                                   ram_reset_set_verify);
    object_class_property_set_description(oc, "verify",
        "Compare RAM and devices with the snapshot after each load");
    object_class_property_add_bool(oc, "rewind", ram_reset_get_rewind,
                                   ram_reset_set_rewind);
    object_class_property_set_description(oc, "rewind",
        "Copy the RAM of the snapshot, and undo only the changes");
    object_class_property_add(oc, "rewind-limit", "size",
                              ram_reset_get_rewind_limit,
                              ram_reset_set_rewind_limit, NULL, NULL);
    object_class_property_set_description(oc, "rewind-limit",
        "Largest size of that copy in bytes; 0 means no limit");
    object_class_property_add_str(oc, "template-dir",
                                  ram_reset_get_template_dir,
                                  ram_reset_set_template_dir);
    object_class_property_set_description(oc, "template-dir",
        "Directory for files with the RAM of snapshots, which outlive QEMU");
    object_class_property_add(oc, "template-limit", "size",
                              ram_reset_get_template_limit,
                              ram_reset_set_template_limit, NULL, NULL);
    object_class_property_set_description(oc, "template-limit",
        "Limit for the size of these files; 0 means half of the file system");
    object_class_property_add_bool(oc, "new-vmgenid",
                                   ram_reset_get_new_vmgenid,
                                   ram_reset_set_new_vmgenid);
    object_class_property_set_description(oc, "new-vmgenid",
        "Give the VM a new generation ID with each load (vmgenid device)");
    object_class_property_add(oc, "threads", "uint32", ram_reset_get_threads,
                              ram_reset_set_threads, NULL, NULL);
    object_class_property_set_description(oc, "threads",
        "Threads for clearing in place; 0 means one per host CPU, at most 8");
    ram_reset_add_keep_disks(oc);
    ram_reset_add_rewind_options(oc);
}

static const TypeInfo ram_reset_types[] = {
    {
        .name = TYPE_RAM_RESET,
        .parent = TYPE_OBJECT,
        .abstract = true,
        .instance_size = sizeof(RamReset),
        .instance_init = ram_reset_instance_init,
        .instance_finalize = ram_reset_instance_finalize,
        .class_size = sizeof(RamResetClass),
        .class_init = ram_reset_class_init,
        .interfaces = (InterfaceInfo[]) {
            { TYPE_USER_CREATABLE },
            { }
        },
    },
};

DEFINE_TYPES(ram_reset_types)
