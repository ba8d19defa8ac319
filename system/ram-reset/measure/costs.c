/*
 * Measuring: the costs on a host for each kind of memory
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "system/ram-reset/measure/costs.h"

#define GRANULE "granule"

#define PAGE_SIZE   4096
#define MAX_GRANULE (1 << 30)

/* A second, where a microsecond is expected */
#define MAX_NS 1e9

static const struct {
    const char *name;
    size_t offset;
} keys[] = {
    { "test", offsetof(MemoryCosts, test) },
    { "clear", offsetof(MemoryCosts, clear) },
    { "discard-call", offsetof(MemoryCosts, discard_call) },
    { "discard", offsetof(MemoryCosts, discard) },
    { "remap-call", offsetof(MemoryCosts, remap_call) },
    { "remap", offsetof(MemoryCosts, remap) },
    { "fault", offsetof(MemoryCosts, fault) },
    { "guest-fault", offsetof(MemoryCosts, guest_fault) },
    { "guest-map", offsetof(MemoryCosts, guest_map) },
};

const char *costs_kind_name(CostsKind kind)
{
    static const char *const names[] = { "anonymous", "shared", "hugetlb" };

    return names[kind];
}

static bool read_kind(GKeyFile *file, const char *group, MemoryCosts *costs,
                      Error **errp)
{
    g_autoptr(GError) err = NULL;
    g_auto(GStrv) found = g_key_file_get_keys(file, group, NULL, NULL);
    int granule = g_key_file_get_integer(file, group, GRANULE, &err);

    if (err) {
        error_setg(errp, "%s", err->message);
        return false;
    }
    if (granule < PAGE_SIZE || granule > MAX_GRANULE ||
        (granule & (granule - 1))) {
        error_setg(errp, "[%s] " GRANULE "=%d is not a power of two from %d to "
                   "%d bytes", group, granule, PAGE_SIZE, MAX_GRANULE);
        return false;
    }
    costs->granule = granule / PAGE_SIZE;
    for (unsigned i = 0; i < G_N_ELEMENTS(keys); i++) {
        double ns = g_key_file_get_double(file, group, keys[i].name, &err);

        if (err) {
            error_setg(errp, "%s", err->message);
            return false;
        }
        /* This also refuses NaN */
        if (!(ns >= 0 && ns <= MAX_NS)) {
            error_setg(errp, "[%s] %s=%g is not within 0 and %g nanoseconds",
                       group, keys[i].name, ns, MAX_NS);
            return false;
        }
        *(double *)((char *)costs + keys[i].offset) = ns;
    }
    if (g_strv_length(found) != G_N_ELEMENTS(keys) + 1) {
        error_setg(errp, "[%s] has unknown keys", group);
        return false;
    }
    return true;
}

bool costs_read(const char *path, HostCosts *costs, Error **errp)
{
    g_autoptr(GKeyFile) file = g_key_file_new();
    g_autoptr(GError) err = NULL;
    g_auto(GStrv) groups = NULL;
    unsigned known = 0;

    *costs = (HostCosts) { };
    if (!g_key_file_load_from_file(file, path, G_KEY_FILE_NONE, &err)) {
        error_setg(errp, "%s", err->message);
        return false;
    }
    for (CostsKind kind = 0; kind < COSTS_NR_KINDS; kind++) {
        const char *name = costs_kind_name(kind);

        if (g_key_file_has_group(file, name)) {
            if (!read_kind(file, name, &costs->kinds[kind], errp)) {
                return false;
            }
            costs->known[kind] = true;
            known++;
        }
    }
    groups = g_key_file_get_groups(file, NULL);
    if (!known || g_strv_length(groups) != known) {
        error_setg(errp, "its groups are not [anonymous], [shared] or "
                   "[hugetlb]");
        return false;
    }
    return true;
}

MemoryCosts costs_for_granule(const MemoryCosts *costs, uint32_t granule)
{
    MemoryCosts scaled = *costs;

    scaled.granule = granule;
    scaled.fault = costs->fault / costs->granule * granule;
    scaled.discard = costs->discard * costs->granule / granule;
    scaled.remap = costs->remap * costs->granule / granule;
    return scaled;
}
