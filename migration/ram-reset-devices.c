/*
 * Devices that a load leaves as they are
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "system/ram-reset-compat.h"
#include "system/ram-reset-devices.h"
#include "system/ram-reset-flags.h"
#include "system/ram-reset-rewind.h"
#include "system/runstate.h"
#include "migration/misc.h"
#include "options.h"
#include "migration/ram-reset-description.h"
#include "migration/ram-reset-devices.h"
#include "migration/ram-reset-identity.h"
#include "migration/ram-reset-kept.h"
#include "migration/ram-reset-rewind.h"

/* Where it is in what is kept behind RAM; @many: there are others of its name */
typedef struct SectionPlace {
    uint64_t start, end;
    bool many;
} SectionPlace;

/* BQL */
static struct {
    char *key;                  /* of the snapshot that was loaded last */
    GHashTable *sections;       /* name -> SectionPlace; NULL if not known */
    bool looked;                /* for the sections */
    unsigned kept;              /* in the load that is going on */
} devices;

static void *find(VMStateIf *part, const char *vmsd)
{
    g_autofree char *path = vmstate_if_get_id(part);
    g_autofree char *id = path ? g_strdup_printf("%s/%s", path, vmsd)
                               : g_strdup(vmsd);
    SectionPlace *found = g_hash_table_lookup(devices.sections, id);

    return found && !found->many ? found : NULL;
}

static void leave_out(void *section, void *unused)
{
    SectionPlace *s = section;

    ram_reset_kept_leave_out(s->start, s->end);
}

/*
 * Of @data, which is what is kept behind RAM; NULL if it is not described, or
 * sections have no footers
 */
static GHashTable *find_sections(const uint8_t *data, size_t size)
{
    SectionBytes bytes = { "the snapshot", data, size, true };
    DeviceSections all = {};
    GHashTable *places = NULL;

    if (device_sections_read(&all, &bytes, NULL)) {
        places = g_hash_table_new_full(g_str_hash, g_str_equal, g_free,
                                       g_free);
    }
    for (unsigned i = 0; places && i < all.list->len; i++) {
        DeviceSection *s = &g_array_index(all.list, DeviceSection, i);
        SectionPlace *place = g_hash_table_lookup(places, s->desc->name);

        if (place) {
            place->many = true;
            continue;
        }
        place = g_new(SectionPlace, 1);
        *place = (SectionPlace) { s->start, s->end, s->instance != 0 };
        g_hash_table_insert(places, g_strdup(s->desc->name), place);
    }
    device_sections_clear(&all);
    return places;
}

static bool know_sections(const char *key)
{
    gsize size = 0;
    const uint8_t *data = ram_reset_kept_devices(key, &size);

    if (data && !devices.looked) {
        devices.looked = true;
        devices.sections = find_sections(data, size);
    }
    return data && devices.sections;
}

static void forget(void)
{
    ram_reset_devices_forget();
    devices.looked = false;
    g_clear_pointer(&devices.sections, g_hash_table_unref);
    g_clear_pointer(&devices.key, g_free);
}

/* Memory that no load restores: a ROM may be in it */
static int is_not_rewound(RAMBlock *rb, void *opaque)
{
    return migrate_ram_is_ignored(rb);
}

void ram_reset_keep_devices(BlockDriverState *bs, const QEMUSnapshotInfo *sn,
                            bool map)
{
    static const RamResetSections stream = {
        .find = find, .leave_out = leave_out,
    };
    g_autofree char *key = NULL;

    if (!ram_reset_rewind_wanted() ||
        ram_reset_snapshot_rewind_blocker(bs, sn)) {
        return;
    }
    ram_reset_flags.roms_stay = !qemu_ram_foreach_block(is_not_rewound, NULL);
    key = ram_reset_snapshot_key(bs, sn);
    if (!g_strcmp0(key, devices.key) && know_sections(key)) {
        devices.kept = ram_reset_devices_hold(map, &stream);
    }
}

void ram_reset_devices_reset(void)
{
    ram_reset_flags.roms_stay = false;
    ram_reset_devices_complete_reset();
    ram_reset_devices_renew();
    if (!ram_reset_devices_release()) {
        /*
         * The load has to fail if what is gone is in the VM state.  So all is
         * loaded, and has to be reset before that.
         */
        ram_reset_kept_leave_nothing_out();
        devices.kept = 0;
        qemu_system_reset(SHUTDOWN_CAUSE_SNAPSHOT_LOAD);
    }
}

unsigned ram_reset_devices_loaded(BlockDriverState *bs,
                                  const QEMUSnapshotInfo *sn, bool success)
{
    g_autofree char *key = NULL;
    unsigned kept = devices.kept;

    ram_reset_devices_release();
    ram_reset_kept_leave_nothing_out();
    devices.kept = 0;
    if (success && ram_reset_rewind_wanted()) {
        key = ram_reset_snapshot_key(bs, sn);
    }
    if (!key || g_strcmp0(key, devices.key)) {
        forget();
    }
    if (key) {
        ram_reset_devices_copy();
        devices.key = devices.key ?: g_steal_pointer(&key);
    }
    return kept;
}
