/*
 * Unchanged devices, which a load does not load
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "system/ram-reset-compat.h"
#include "system/ram-reset-devices.h"
#include "system/ram-reset-flags.h"
#include "system/ram-reset-rewind.h"
#include "migration/misc.h"
#include "migration/options.h"
#include "migration/ram-reset/devices.h"
#include "migration/ram-reset/verify/self-check.h"
#include "migration/ram-reset/vmstate/device-sections.h"

/* A section in the cached part behind RAM; @many: several have its name */
typedef struct SectionPlace {
    uint64_t start, end;
    bool many;
} SectionPlace;

static void *devices_find_section(void *opaque, VMStateIf *part,
                                  const char *vmsd)
{
    RamResetSnapshot *snapshot = opaque;
    g_autofree char *path = vmstate_if_get_id(part);
    g_autofree char *id = path ? g_strdup_printf("%s/%s", path, vmsd)
                               : g_strdup(vmsd);
    SectionPlace *found = g_hash_table_lookup(snapshot->sections, id);

    return found && !found->many ? found : NULL;
}

static bool devices_check_section(DeviceState *dev, void *section)
{
    return ram_reset_self_check(dev, ((SectionPlace *)section)->start);
}

static void devices_skip_section(void *section, void *opaque)
{
    RamResetSnapshot *snapshot = opaque;
    SectionPlace *place = section;

    vmstate_cache_skip(&snapshot->cache, place->start, place->end);
}

/*
 * Returns name -> SectionPlace for @data, the cached part behind RAM; NULL if
 * that has no description, or sections have no footers
 */
static GHashTable *find_sections(const uint8_t *data, size_t size)
{
    SectionBytes bytes = {
        .what = "the snapshot", .data = data, .len = size, .footers = true,
    };
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

static bool read_sections(RamResetSnapshot *s)
{
    gsize size = 0;
    const uint8_t *data = vmstate_cache_devices(&s->cache, &size);

    if (data && !s->sections_read) {
        s->sections_read = true;
        s->sections = find_sections(data, size);
    }
    return data && s->sections;
}

/* A load does not restore an ignored block, which may have a ROM */
static int is_not_rewound(RAMBlock *rb, void *opaque)
{
    return migrate_ram_is_ignored(rb);
}

unsigned ram_reset_leave_devices(RamResetSnapshot *s, bool map_frozen)
{
    RamResetSections stream = {
        .find = devices_find_section, .check = devices_check_section,
        .leave_out = devices_skip_section, .opaque = s,
    };
    unsigned unchanged = 0;
    const uint8_t *data;
    gsize size;

    ram_reset_flags.roms_stay = !qemu_ram_foreach_block(is_not_rewound, NULL);
    if (ram_reset_unchanged_devices_wanted() && s->has_devices &&
        read_sections(s)) {
        data = vmstate_cache_devices(&s->cache, &size);
        ram_reset_self_check_begin(data, size);
        unchanged = ram_reset_devices_begin_reset(map_frozen, &stream);
        ram_reset_self_check_end();
    }
    return unchanged;
}

bool ram_reset_devices_were_reset(void)
{
    ram_reset_flags.roms_stay = false;
    ram_reset_devices_complete_reset();
    ram_reset_devices_renew();
    return ram_reset_devices_end_reset();
}

void ram_reset_devices_loaded(RamResetSnapshot *s, bool success)
{
    ram_reset_devices_end_reset();
    vmstate_cache_clear_skips(&s->cache);
    s->has_devices = false;
    if (!success || !ram_reset_rewind_wanted()) {
        ram_reset_devices_drop_copy();
        vmstate_cache_drop(&s->cache);
        return;
    }
    ram_reset_snapshot_set_current(s);
    s->has_devices = ram_reset_unchanged_devices_wanted();
    if (s->has_devices) {
        ram_reset_devices_copy();
    } else {
        ram_reset_devices_drop_copy();
    }
}
