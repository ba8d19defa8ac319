/*
 * RAM reset: the options that the user has set
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/error-report.h"
#include "qom/object.h"
#include "system/ram-reset.h"
#include "system/ram-reset-load.h"
#include "system/ram-reset-rewind.h"
#include "system/ram-reset-template.h"
#include "system/ram-reset/options.h"

#define DEFAULT_THREADS 8

/*
 * Protected by the BQL.  @rewinding: objects with rewind=on; @load_expected:
 * -loadvm will overwrite RAM before the guest runs
 */
static struct {
    NotifierList changed;
    unsigned rewinding;
    bool load_expected;
} options = {
    .changed = NOTIFIER_LIST_INITIALIZER(options.changed),
};

void ram_reset_expect_load(void)
{
    options.load_expected = true;
}

bool ram_reset_load_is_expected(void)
{
    return options.load_expected;
}

static int collect_object(Object *obj, void *opaque)
{
    if (object_dynamic_cast(obj, TYPE_RAM_RESET)) {
        g_ptr_array_add(opaque, obj);
    }
    return 0;
}

GPtrArray *ram_reset_objects(void)
{
    GPtrArray *objs = g_ptr_array_new();

    object_child_foreach(object_get_objects_root(), collect_object, objs);
    return objs;
}

const char *ram_reset_id(RamReset *rr)
{
    return object_get_canonical_path_component(OBJECT(rr));
}

unsigned ram_reset_threads(RamReset *rr)
{
    return rr->threads ?: MIN(g_get_num_processors(), DEFAULT_THREADS);
}

RamResetClass *ram_reset_class(const char *type)
{
    return RAM_RESET_CLASS(object_class_by_name(type));
}

const char *ram_reset_strategy_name(RamResetClass *rrc)
{
    const char *type = object_class_get_name(OBJECT_CLASS(rrc));

    return type + strlen(TYPE_RAM_RESET "-");
}

/* The first object for which @wants returns true, or NULL */
static RamReset *find_object(bool (*wants)(const RamReset *rr))
{
    g_autoptr(GPtrArray) objs = ram_reset_objects();

    for (unsigned i = 0; i < objs->len; i++) {
        RamReset *rr = RAM_RESET(objs->pdata[i]);

        if (wants(rr)) {
            return rr;
        }
    }
    return NULL;
}

static bool wants_anything(const RamReset *rr)
{
    return true;
}

bool ram_reset_enabled(void)
{
    return find_object(wants_anything);
}

static bool wants_verify(const RamReset *rr)
{
    return rr->verify;
}

bool ram_reset_verify_wanted(void)
{
    return find_object(wants_verify);
}

static bool wants_new_vmgenid(const RamReset *rr)
{
    return rr->new_vmgenid;
}

bool ram_reset_new_vmgenid_wanted(void)
{
    return find_object(wants_new_vmgenid);
}

static bool wants_templates(const RamReset *rr)
{
    return rr->template_dir && rr->completed;
}

RamReset *ram_reset_template_object(void)
{
    return find_object(wants_templates);
}

bool ram_reset_templates_wanted(void)
{
    return ram_reset_template_object();
}

bool ram_reset_rewind_wanted(void)
{
    return options.rewinding;
}

static bool wants_all_loaded(const RamReset *rr)
{
    return rr->load_unchanged;
}

bool ram_reset_unchanged_devices_wanted(void)
{
    return !find_object(wants_all_loaded);
}

static bool ram_reset_get_unchanged_devices(Object *obj, Error **errp)
{
    return !RAM_RESET(obj)->load_unchanged;
}

static void ram_reset_set_unchanged_devices(Object *obj, bool value,
                                            Error **errp)
{
    RAM_RESET(obj)->load_unchanged = !value;
}

static bool saves_in_memory(const RamReset *rr)
{
    return rr->save_kind == RAM_RESET_SAVE_KIND_MEMORY;
}

RamResetSaveKind ram_reset_save_kind(void)
{
    return find_object(saves_in_memory) ? RAM_RESET_SAVE_KIND_MEMORY
                                        : RAM_RESET_SAVE_KIND_IMAGE;
}

static int ram_reset_get_save_kind(Object *obj, Error **errp)
{
    return RAM_RESET(obj)->save_kind;
}

static void ram_reset_set_save_kind(Object *obj, int value, Error **errp)
{
    RAM_RESET(obj)->save_kind = value;
}

void ram_reset_add_rewind_options(ObjectClass *oc)
{
    object_class_property_add_bool(oc, "unchanged-devices",
                                   ram_reset_get_unchanged_devices,
                                   ram_reset_set_unchanged_devices);
    object_class_property_set_description(oc, "unchanged-devices",
        "Leave devices alone that are as the snapshot has them");
    object_class_property_add_enum(oc, "save-kind", "RamResetSaveKind",
                                   &RamResetSaveKind_lookup,
                                   ram_reset_get_save_kind,
                                   ram_reset_set_save_kind);
    object_class_property_set_description(oc, "save-kind",
        "Where new snapshots have RAM and devices: image or memory");
}

void ram_reset_warn_of_idle_limits(RamReset *rr)
{
    const char *type = object_get_typename(OBJECT(rr));

    if (rr->rewind_limit && !rr->rewind) {
        warn_report("%s '%s': rewind-limit= has no effect without rewind=on",
                    type, ram_reset_id(rr));
    }
    if (rr->template_limit && !rr->template_dir) {
        warn_report("%s '%s': template-limit= has no effect without "
                    "template-dir=", type, ram_reset_id(rr));
    }
}

uint64_t ram_reset_smallest_limit(uint64_t (*limit)(const RamReset *rr))
{
    g_autoptr(GPtrArray) objs = ram_reset_objects();
    uint64_t smallest = 0;

    for (unsigned i = 0; i < objs->len; i++) {
        smallest = MIN_NON_ZERO(smallest, limit(RAM_RESET(objs->pdata[i])));
    }
    return smallest;
}

void ram_reset_add_options_notifier(Notifier *n)
{
    notifier_list_add(&options.changed, n);
}

void ram_reset_options_changed(RamReset *rr, int more)
{
    options.rewinding += more;
    notifier_list_notify(&options.changed, rr);
}
