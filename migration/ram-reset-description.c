/*
 * Where each device's state is in a VM state
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/bswap.h"
#include "block/snapshot.h"
#include "savevm.h"
#include "migration/ram-reset-description.h"

/* The footer of a section: a byte and the section's number */
#define FOOTER 5
/* The head of a description: a byte and its length */
#define HEAD   5
/* What precedes a subsection beside its name, its version included */
#define SUBSECTION 6

/* JSON, as JSONWriter writes it: without escapes where it matters */
typedef struct Text {
    const char *at, *end;
    bool ok;
    unsigned depth;
} Text;

#define DEEPEST 50

static void skip_space(Text *t)
{
    while (t->at < t->end && g_ascii_isspace(*t->at)) {
        t->at++;
    }
}

static bool next_is(Text *t, char c)
{
    skip_space(t);
    if (t->at < t->end && *t->at == c) {
        t->at++;
        return true;
    }
    return false;
}

static void expect(Text *t, char c)
{
    t->ok = t->ok && next_is(t, c);
}

static char *take_string(Text *t)
{
    const char *start;

    expect(t, '"');
    for (start = t->at; t->ok && t->at < t->end && *t->at != '"'; t->at++) {
        t->ok = *t->at != '\\';
    }
    start = t->ok ? start : t->at;
    expect(t, '"');
    return g_strndup(start, t->ok ? t->at - 1 - start : 0);
}

static uint64_t take_number(Text *t)
{
    uint64_t n = 0;
    bool any = false;

    skip_space(t);
    for (; t->at < t->end && g_ascii_isdigit(*t->at); t->at++) {
        any = true;
        t->ok &= n < UINT32_MAX;
        n = n * 10 + *t->at - '0';
    }
    t->ok &= any;
    return n;
}

/* Calls @member after each key of an object, to take the value */
typedef void TakeMember(Text *t, const char *key, void *opaque);

static void take_object(Text *t, TakeMember *member, void *opaque)
{
    expect(t, '{');
    if (!t->ok || next_is(t, '}')) {
        return;
    }
    do {
        g_autofree char *key = take_string(t);

        expect(t, ':');
        if (t->ok) {
            member(t, key, opaque);
        }
    } while (t->ok && next_is(t, ','));
    expect(t, '}');
}

static void take_array(Text *t, void (*element)(Text *t, void *opaque),
                       void *opaque)
{
    expect(t, '[');
    if (!t->ok || next_is(t, ']')) {
        return;
    }
    do {
        element(t, opaque);
    } while (t->ok && next_is(t, ','));
    expect(t, ']');
}

static void skip_value(Text *t, void *opaque);

static void skip_member(Text *t, const char *key, void *opaque)
{
    skip_value(t, opaque);
}

static void skip_value(Text *t, void *opaque)
{
    skip_space(t);
    t->ok = t->ok && t->at < t->end && t->depth++ < DEEPEST;
    if (!t->ok) {
        return;
    }
    switch (*t->at) {
    case '{':
        take_object(t, skip_member, opaque);
        break;
    case '[':
        take_array(t, skip_value, opaque);
        break;
    case '"':
        g_free(take_string(t));
        break;
    default:
        take_number(t);
    }
    t->depth--;
}

typedef struct Field {
    uint64_t size, count;
} Field;

static void take_field_member(Text *t, const char *key, void *opaque)
{
    Field *field = opaque;

    if (!strcmp(key, "size")) {
        field->size = take_number(t);
    } else if (!strcmp(key, "array_len")) {
        field->count = take_number(t);
    } else {
        skip_value(t, NULL);
    }
}

static void take_field(Text *t, void *opaque)
{
    uint64_t *size = opaque;
    Field field = { .count = 1 };

    /* Of an array all of whose elements have one size, one is described */
    take_object(t, take_field_member, &field);
    t->ok = t->ok && field.size <= UINT32_MAX && field.count <= UINT32_MAX;
    *size += t->ok ? field.size * field.count : 0;
}

/* What a device and a subsection of one have in common */
typedef struct Described {
    char *name, *vmsd;
    uint64_t instance, size;
} Described;

static void take_subsection(Text *t, void *opaque);

static void take_described_member(Text *t, const char *key, void *opaque)
{
    Described *d = opaque;

    if (!strcmp(key, "name") && !d->name) {
        d->name = take_string(t);
    } else if (!strcmp(key, "vmsd_name") && !d->vmsd) {
        d->vmsd = take_string(t);
    } else if (!strcmp(key, "instance_id")) {
        d->instance = take_number(t);
    } else if (!strcmp(key, "fields")) {
        take_array(t, take_field, &d->size);
    } else if (!strcmp(key, "subsections")) {
        take_array(t, take_subsection, &d->size);
    } else {
        skip_value(t, NULL);
    }
}

static void take_subsection(Text *t, void *opaque)
{
    uint64_t *size = opaque;
    Described d = {};

    t->ok = t->ok && t->depth++ < DEEPEST;
    take_object(t, take_described_member, &d);
    t->depth--;
    t->ok = t->ok && d.vmsd;
    *size += t->ok ? SUBSECTION + strlen(d.vmsd) + d.size : 0;
    g_free(d.name);
    g_free(d.vmsd);
}

static void free_section(gpointer p)
{
    DeviceSection *section = p;

    g_free(section->id);
    g_free(section);
}

static void take_device(Text *t, void *opaque)
{
    Described d = {};
    DeviceSection *section = g_new0(DeviceSection, 1);

    take_object(t, take_described_member, &d);
    t->ok = t->ok && d.name && strlen(d.name) < 256;
    section->id = d.name;
    section->instance = d.instance;
    section->size = d.size;
    g_ptr_array_add(opaque, section);
    g_free(d.vmsd);
}

static void take_description_member(Text *t, const char *key, void *opaque)
{
    if (!strcmp(key, "devices")) {
        take_array(t, take_device, opaque);
    } else {
        skip_value(t, NULL);
    }
}

/* Where the description's head is, which ends with the data; 0 if nowhere */
static size_t find_description(const uint8_t *data, size_t size)
{
    for (size_t at = size; at-- > FOOTER + 1;) {
        if (data[at] == QEMU_VM_VMDESCRIPTION && size - at >= HEAD &&
            data[at - 1] == QEMU_VM_EOF &&
            ldl_be_p(data + at + 1) == size - at - HEAD) {
            return at;
        }
    }
    return 0;
}

/* Whether @s is at s->start; sets s->end if it is */
static bool is_there(DeviceSection *s, const uint8_t *data, size_t end)
{
    size_t length = strlen(s->id);
    const uint8_t *head = data + s->start;
    const uint8_t *rest = head + 6 + length;
    uint64_t whole = 14 + length + s->size + FOOTER;

    if (end - s->start < whole || head[0] != QEMU_VM_SECTION_FULL ||
        head[5] != length || memcmp(head + 6, s->id, length) ||
        ldl_be_p(rest) != s->instance) {
        return false;
    }
    s->end = s->start + whole;
    return data[s->end - FOOTER] == QEMU_VM_SECTION_FOOTER &&
           !memcmp(data + s->end - FOOTER + 1, head + 1, FOOTER - 1);
}

/* From the footer of RAM to @end */
static bool find_all(GPtrArray *sections, const uint8_t *data, size_t end)
{
    size_t at = FOOTER;

    for (int i = 0; i < sections->len; ) {
        DeviceSection *s = g_ptr_array_index(sections, i);

        s->start = at;
        if (is_there(s, data, end)) {
            at = s->end;
            i++;
        } else if (at == FOOTER) {
            /* Some are saved before RAM is */
            g_ptr_array_remove_index(sections, i);
        } else {
            return false;
        }
    }
    return at == end;
}

GPtrArray *ram_reset_device_sections(const uint8_t *data, size_t size)
{
    g_autoptr(GPtrArray) sections = g_ptr_array_new_with_free_func(free_section);
    size_t at = find_description(data, size);
    Text text = { .at = (const char *)data + at + HEAD,
                  .end = (const char *)data + size, .ok = true };

    if (!at || data[0] != QEMU_VM_SECTION_FOOTER) {
        return NULL;
    }
    take_object(&text, take_description_member, sections);
    if (!text.ok || !find_all(sections, data, at - 1)) {
        return NULL;
    }
    return g_steal_pointer(&sections);
}
