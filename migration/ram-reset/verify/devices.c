/*
 * Verify that devices have the state of a snapshot
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qapi/error.h"
#include "block/block.h"
#include "migration/ram-reset/verify/devices.h"
#include "migration/ram-reset/verify/exceptions.h"
#include "migration/ram-reset/verify/save-devices.h"
#include "system/ram-reset/trace.h"

/* Two descriptions and their data: 0 of the snapshot, 1 of the machine */
typedef struct Pair {
    const VMDesc *desc[2];
    const uint8_t *data[2];
} Pair;

typedef struct Comparison {
    const DeviceSection *section;
    GString *path;              /* names of nested fields */
    unsigned count;             /* number of differences */
    Error **errp;
} Comparison;

static void report_difference(Comparison *c, const char *what)
{
    const DeviceSection *s = c->section;

    trace_ram_reset_device_differs(s->desc->name, s->instance, c->path->str,
                                   what);
    if (!c->count++) {
        error_setg(c->errp, "devices are not what the snapshot has: section "
                   "'%s', instance %" PRIu32 "%s%s: %s", s->desc->name,
                   s->instance, c->path->len ? ", field " : "", c->path->str,
                   what);
    }
}

static void compare_bytes(Comparison *c, const char *vmsd, const char *field,
                          const uint8_t *a, const uint8_t *b, int64_t size)
{
    for (int64_t i = 0; i < size; i++) {
        uint8_t bits = a[i] ^ b[i];

        if (bits && !ram_reset_may_differ(vmsd, field, i, bits)) {
            g_autofree char *text = g_strdup_printf(
                "byte %" PRId64 " of %" PRId64 " is 0x%02x, should be 0x%02x",
                i, size, b[i], a[i]);

            report_difference(c, text);
            return;
        }
    }
}

static bool compare_fields(Comparison *c, Pair *p);

/* False for a list: unnamed bytes lie between its structures */
static bool field_is_described(const VMDesc *field)
{
    return field->inside && field->inside->content == field->size;
}

static void compare_element(Comparison *c, Pair *p, const VMDesc *a,
                            const VMDesc *b)
{
    const char *vmsd = p->desc[0]->vmsd;

    if (a->size == b->size &&
        !memcmp(p->data[0], p->data[1], a->size)) {
        return;
    }
    if (field_is_described(a) && field_is_described(b)) {
        Pair inside = { { a->inside, b->inside },
                        { p->data[0], p->data[1] } };

        compare_fields(c, &inside);
    } else if (a->size == b->size) {
        compare_bytes(c, vmsd, a->name, p->data[0], p->data[1], a->size);
    } else if (!ram_reset_may_differ(vmsd, a->name, 0, 0xff)) {
        report_difference(c, "it has another size");
    }
}

static void compare_field(Comparison *c, Pair *p, const VMDesc *a,
                          const VMDesc *b)
{
    size_t len = c->path->len;

    for (int64_t i = 0; i < a->len; i++) {
        g_string_append_printf(c->path, "%s%s", len ? "." : "", a->name);
        if (a->index >= 0 || a->len > 1) {
            g_string_append_printf(c->path, "[%" PRId64 "]",
                                   a->len > 1 ? i : a->index);
        }
        compare_element(c, p, a, b);
        g_string_truncate(c->path, len);
        p->data[0] += a->size;
        p->data[1] += b->size;
    }
}

/* Move @p behind the subsection *@next of @side, and return it in @sub */
static const VMDesc *fetch_subsection(Pair *p, Pair *sub, unsigned side,
                                      const VMDesc **next)
{
    const VMDesc *d = *next;

    *next = d->next;
    sub->desc[side] = d;
    sub->data[side] = p->data[side] + vmdesc_head_size(d);
    p->data[side] = sub->data[side] + d->content;
    return d;
}

/* Only @side has the subsection; returns false if that is a difference */
static bool compare_lone_subsection(Comparison *c, Pair *p, unsigned side,
                                    const VMDesc **next)
{
    Pair sub;
    const VMDesc *d = fetch_subsection(p, &sub, side, next);
    g_autofree char *text = NULL;

    if (ram_reset_may_differ(d->vmsd, NULL, 0, 0xff)) {
        return true;
    }
    text = g_strdup_printf("subsection '%s' %s", d->vmsd ?: "",
                           side ? "should not be there" : "is missing");
    report_difference(c, text);
    return false;
}

static bool has_subsection(const VMDesc *first, const char *vmsd)
{
    for (const VMDesc *sub = first; sub; sub = sub->next) {
        if (!g_strcmp0(sub->vmsd, vmsd)) {
            return true;
        }
    }
    return false;
}

static bool compare_subsections(Comparison *c, Pair *p)
{
    const VMDesc *one = p->desc[0]->subsections;
    const VMDesc *two = p->desc[1]->subsections;

    while (one || two) {
        Pair sub;

        if (one && !has_subsection(two, one->vmsd)) {
            if (!compare_lone_subsection(c, p, 0, &one)) {
                return false;
            }
        } else if (!one || g_strcmp0(one->vmsd, two->vmsd)) {
            if (!compare_lone_subsection(c, p, 1, &two)) {
                return false;
            }
        } else {
            fetch_subsection(p, &sub, 0, &one);
            fetch_subsection(p, &sub, 1, &two);
            compare_fields(c, &sub);
        }
    }
    return true;
}

/* Returns false if a difference prevents the comparison of the rest */
static bool compare_fields(Comparison *c, Pair *p)
{
    const VMDesc *one = p->desc[0]->fields, *two = p->desc[1]->fields;

    for (; one || two; one = one->next, two = two->next) {
        if (!one || !two || g_strcmp0(one->name, two->name) ||
            one->index != two->index || one->len != two->len) {
            report_difference(c, "it has other fields");
            return false;
        }
        compare_field(c, p, one, two);
    }
    return compare_subsections(c, p);
}

static void compare_section(const DeviceSection *a, const DeviceSection *b,
                            Comparison *c)
{
    Pair p = { { a->desc, b->desc }, { a->data, b->data } };

    if (a->version != b->version) {
        report_difference(c, "it has another version");
    } else if (a->len != b->len || memcmp(a->data, b->data, a->len)) {
        compare_fields(c, &p);
    }
}

bool ram_reset_compare_section(const DeviceSection *a, const DeviceSection *b,
                               Error **errp)
{
    g_autoptr(GString) path = g_string_new("");
    Comparison c = { .section = a, .path = path, .errp = errp };

    compare_section(a, b, &c);
    return !c.count;
}

/* A device that only @b has was plugged since the save, and has been reset */
static bool verify_sections(const DeviceSections *a, const DeviceSections *b,
                            Error **errp)
{
    g_autoptr(GString) path = g_string_new("");
    Comparison c = { .path = path, .errp = errp };
    const GArray *list = a->list;

    for (unsigned i = 0; i < list->len; i++) {
        const DeviceSection *s = &g_array_index(list, DeviceSection, i);
        const DeviceSection *other = device_sections_find(b, s->desc->name,
                                                          s->instance, i);

        c.section = s;
        if (other) {
            compare_section(s, other, &c);
        } else {
            report_difference(&c, "it is missing");
        }
    }
    return !c.count;
}

bool ram_reset_check_devices(BlockDriverState *bs, const QEMUSnapshotInfo *sn,
                             GBytes *memory, int64_t from, Error **errp)
{
    ERRP_GUARD();
    DeviceSections snapshot = {}, machine = {};
    bool ok = (memory ? device_sections_of_memory(&snapshot, memory, from, errp)
                      : device_sections_load(&snapshot, bs, sn->vm_state_size,
                                             from, errp)) &&
              ram_reset_save_devices(&machine, errp) &&
              ram_reset_undo_save_changes(&snapshot, errp);

    if (ok) {
        ok = verify_sections(&snapshot, &machine, errp);
    } else {
        error_prepend(errp, "devices cannot be verified: ");
    }
    device_sections_clear(&snapshot);
    device_sections_clear(&machine);
    return ok;
}
