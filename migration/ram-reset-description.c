/*
 * Where each device's state is in a VM state
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qapi/error.h"
#include "qapi/qapi-builtin-types.h"
#include "qemu/bswap.h"
#include "savevm.h"
#include "migration/ram-reset-description.h"

/* The footer of a section: a byte and the section's number */
#define FOOTER 5

/* A section's type, number, length of its name; then instance and version */
#define HEAD 6
#define HEAD_REST 8

/* A command's type, number, and the length of its data */
#define COMMAND 5

/* The bytes that are left, and the description of what comes next */
typedef struct Reader {
    const SectionBytes *bytes;
    size_t at;
    const VMDesc *next;
} Reader;

static size_t left(const Reader *r)
{
    return r->bytes->len - r->at;
}

static bool skip_commands(Reader *r, Error **errp)
{
    const uint8_t *data = r->bytes->data;

    while (left(r) && data[r->at] == QEMU_VM_COMMAND) {
        size_t size = left(r) < COMMAND
                      ? COMMAND : COMMAND + lduw_be_p(data + r->at + 3);

        if (size > left(r)) {
            error_setg(errp, "%s ends in a command", r->bytes->what);
            return false;
        }
        r->at += size;
    }
    return true;
}

/* A section that was saved before RAM is described, but is not there */
static const VMDesc *find_desc(Reader *r, const char *name, uint32_t instance)
{
    while (r->next) {
        const VMDesc *desc = r->next;

        r->next = desc->next;
        if (desc->name && !strcmp(desc->name, name) &&
            (uint32_t)desc->instance == instance) {
            return desc;
        }
    }
    return NULL;
}

/* The content and the footer of @s, whose head is at @head */
static bool read_content(Reader *r, DeviceSection *s, const uint8_t *head)
{
    size_t footer = r->bytes->footers ? FOOTER : 0;
    int64_t len = s->desc ? s->desc->content : -1;

    if (len < 0 || footer > left(r) || len > left(r) - footer) {
        return false;
    }
    s->data = r->bytes->data + r->at;
    s->len = len;
    r->at += len + footer;
    s->end = r->at;
    return !footer || (s->data[len] == QEMU_VM_SECTION_FOOTER &&
                       !memcmp(s->data + len + 1, head + 1, FOOTER - 1));
}

static bool read_section(Reader *r, DeviceSection *s, Error **errp)
{
    const uint8_t *head = r->bytes->data + r->at;
    char name[UINT8_MAX + 1];

    if (*head != QEMU_VM_SECTION_FULL || left(r) < HEAD ||
        left(r) < HEAD + head[HEAD - 1] + HEAD_REST) {
        error_setg(errp, "%s has a section of type %u where one of a device "
                   "should be", r->bytes->what, *head);
        return false;
    }
    s->start = r->at;
    r->at += HEAD + head[HEAD - 1] + HEAD_REST;
    memcpy(name, head + HEAD, head[HEAD - 1]);
    name[head[HEAD - 1]] = 0;
    s->instance = ldl_be_p(r->bytes->data + r->at - HEAD_REST);
    s->version = ldl_be_p(r->bytes->data + r->at - HEAD_REST / 2);
    s->desc = find_desc(r, name, s->instance);
    if (!read_content(r, s, head)) {
        error_setg(errp, "%s has a section '%s', instance %" PRIu32 ", which "
                   "is not as its description says", r->bytes->what, name,
                   s->instance);
        return false;
    }
    return true;
}

bool device_sections_parse(DeviceSections *s, const SectionBytes *bytes,
                           const char *text, size_t len, Error **errp)
{
    Reader r = { .bytes = bytes };

    s->list = g_array_new(false, false, sizeof(DeviceSection));
    s->description = vmdesc_parse(text, len);
    if (!s->description) {
        error_setg(errp, "the description of %s cannot be read", bytes->what);
        return false;
    }
    r.next = s->description->devices;
    while (skip_commands(&r, errp)) {
        DeviceSection section;

        if (!left(&r)) {
            return true;
        }
        if (!read_section(&r, &section, errp)) {
            return false;
        }
        g_array_append_val(s->list, section);
    }
    return false;
}

bool device_sections_read(DeviceSections *s, const SectionBytes *bytes,
                          Error **errp)
{
    const char *text = vmdesc_find(bytes->data, bytes->len);
    size_t skip = bytes->footers ? FOOTER : 0, len, end;
    SectionBytes sections = *bytes;

    if (!text) {
        error_setg(errp, "%s has no description of devices at its end, see "
                   "machine property 'suppress-vmdesc'", bytes->what);
        return false;
    }
    len = (const char *)bytes->data + bytes->len - text;
    end = bytes->len - len - vmdesc_marks();
    if (skip > end || (skip && *bytes->data != QEMU_VM_SECTION_FOOTER)) {
        error_setg(errp, "%s has no footer behind RAM", bytes->what);
        return false;
    }
    sections.data += skip;
    sections.len = end - skip;
    if (!device_sections_parse(s, &sections, text, len, errp)) {
        return false;
    }
    for (unsigned i = 0; i < s->list->len; i++) {
        DeviceSection *section = &g_array_index(s->list, DeviceSection, i);

        section->start += skip;
        section->end += skip;
    }
    return true;
}

void device_sections_clear(DeviceSections *s)
{
    g_clear_pointer(&s->description, vmdesc_free);
    g_clear_pointer(&s->list, g_array_unref);
}
