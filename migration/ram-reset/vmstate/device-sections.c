/*
 * The sections of devices in a VM state
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qapi/error.h"
#include "qemu/bswap.h"
#include "block/block.h"
#include "migration/migration.h"
#include "migration/ram-reset/vmstate/device-sections.h"
#include "migration/ram-reset/vmstate/format.h"

/* The position in the bytes, and the next description */
typedef struct Reader {
    const SectionBytes *bytes;
    size_t at;
    const VMDesc *next;
} Reader;

static size_t reader_left(const Reader *r)
{
    return r->bytes->len - r->at;
}

static bool skip_commands(Reader *r, Error **errp)
{
    const uint8_t *data = r->bytes->data;

    while (reader_left(r) && data[r->at] == QEMU_VM_COMMAND) {
        size_t size = COMMAND_HEAD;

        size += reader_left(r) < size ? 0 : lduw_be_p(data + r->at + 3);

        if (size > reader_left(r)) {
            error_setg(errp, "%s ends in a command", r->bytes->what);
            return false;
        }
        r->at += size;
    }
    return true;
}

/*
 * A section that was saved before RAM is described, but is not in the bytes.
 * Skip its description.
 */
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

/* Read the content and the footer of @s, whose head is at @head */
static bool read_content(Reader *r, DeviceSection *s, const uint8_t *head)
{
    size_t footer = r->bytes->footers ? SECTION_FOOTER : 0;
    int64_t len = s->desc ? s->desc->content : -1;

    if (len < 0 || footer > reader_left(r) || len > reader_left(r) - footer) {
        return false;
    }
    s->data = r->bytes->data + r->at;
    s->len = len;
    r->at += len + footer;
    s->end = r->at;
    return !footer || (s->data[len] == QEMU_VM_SECTION_FOOTER &&
                       !memcmp(s->data + len + 1, head + 1,
                               SECTION_FOOTER - 1));
}

static bool read_section(Reader *r, DeviceSection *s, Error **errp)
{
    const uint8_t *head = r->bytes->data + r->at, *rest;
    char name[VMSTATE_NAME];
    size_t len = reader_left(r) < SECTION_FULL_HEAD
                 ? 0 : head[SECTION_FULL_HEAD - 1];

    if (*head != QEMU_VM_SECTION_FULL ||
        reader_left(r) < SECTION_FULL_HEAD + len + SECTION_FULL_REST) {
        error_setg(errp, "%s has a section of type %u in place of a device's "
                   "section", r->bytes->what, *head);
        return false;
    }
    s->start = r->at;
    r->at += SECTION_FULL_HEAD + len + SECTION_FULL_REST;
    memcpy(name, head + SECTION_FULL_HEAD, len);
    name[len] = 0;
    rest = head + SECTION_FULL_HEAD + len;
    s->instance = ldl_be_p(rest);
    s->version = ldl_be_p(rest + sizeof(uint32_t));
    s->desc = find_desc(r, name, s->instance);
    if (!read_content(r, s, head)) {
        error_setg(errp, "%s has a section '%s', instance %" PRIu32 ", that "
                   "differs from its description", r->bytes->what, name,
                   s->instance);
        return false;
    }
    return true;
}

bool device_sections_parse(DeviceSections *s, const SectionBytes *bytes,
                           const char *text, size_t len, Error **errp)
{
    Reader r = { .bytes = bytes, .at = bytes->start };

    s->list = g_array_new(false, false, sizeof(DeviceSection));
    s->description = vmdesc_parse(text, len);
    if (!s->description) {
        error_setg(errp, "the description of %s cannot be read", bytes->what);
        return false;
    }
    r.next = s->description->devices;
    while (skip_commands(&r, errp)) {
        DeviceSection section;

        if (!reader_left(&r)) {
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
    size_t skip = bytes->footers ? SECTION_FOOTER : 0, len;
    SectionBytes sections = *bytes;

    if (!text) {
        error_setg(errp, "%s has no description of devices at its end, see "
                   "machine property 'suppress-vmdesc'", bytes->what);
        return false;
    }
    len = (const char *)bytes->data + bytes->len - text;
    sections.start = skip;
    sections.len -= len + VMDESC_MARKS;
    if (skip > sections.len ||
        (skip && *bytes->data != QEMU_VM_SECTION_FOOTER)) {
        error_setg(errp, "%s has no footer behind RAM", bytes->what);
        return false;
    }
    return device_sections_parse(s, &sections, text, len, errp);
}

/* Whether a VM state of @size bytes may end with a description */
static bool ends_with_vmdesc(BlockDriverState *bs, uint64_t size)
{
    uint8_t last;

    return should_send_vmdesc() && size && size <= INT64_MAX &&
           bdrv_load_vmstate(bs, &last, size - 1, 1) >= 0 && last == '}';
}

/* Returns the last @len bytes of a VM state; NULL if they cannot be read */
static uint8_t *read_last_bytes(BlockDriverState *bs, uint64_t size,
                                uint64_t len)
{
    g_autofree uint8_t *data = len <= VMSTATE_MAX_DEVICES
                               ? g_try_malloc(len) : NULL;

    return data && bdrv_load_vmstate(bs, data, size - len, len) >= 0
           ? g_steal_pointer(&data) : NULL;
}

bool device_sections_of_memory(DeviceSections *s, GBytes *vmstate,
                               uint64_t from, Error **errp)
{
    SectionBytes bytes = {
        .what = "the snapshot",
        .footers = migrate_get_current()->send_section_footer,
    };

    bytes.data = g_bytes_get_data(vmstate, &bytes.len);
    bytes.data += from;
    bytes.len -= from;
    return device_sections_read(s, &bytes, errp);
}

bool device_sections_load(DeviceSections *s, BlockDriverState *bs,
                          uint64_t size, int64_t from, Error **errp)
{
    SectionBytes bytes = {
        .what = "the snapshot",
        .footers = migrate_get_current()->send_section_footer,
    };

    if (from <= 0) {
        error_setg(errp, "in the snapshot, RAM is not one run of sections");
        return false;
    }
    if (from < size && ends_with_vmdesc(bs, size)) {
        bytes.len = size - from;
        bytes.data = s->data = read_last_bytes(bs, size, bytes.len);
        if (!s->data) {
            error_setg(errp, "the %zu bytes that the snapshot has behind RAM "
                       "cannot be read", bytes.len);
            return false;
        }
    }
    return device_sections_read(s, &bytes, errp);
}

VMDescription *vmdesc_read(BlockDriverState *bs, uint64_t size)
{
    uint64_t most = ends_with_vmdesc(bs, size)
                    ? MIN(size, VMSTATE_MAX_DEVICES) : 0;

    for (uint64_t len = MIN(most, VMSTATE_END); len;
         len = len < most ? MIN(most, 2 * len) : 0) {
        g_autofree uint8_t *data = read_last_bytes(bs, size, len);
        const char *text = data ? vmdesc_find(data, len) : NULL;

        if (text) {
            /* The parser needs memory: free all but the text */
            len -= (const uint8_t *)text - data;
            memmove(data, text, len);
            data = g_realloc(data, len);
            return vmdesc_parse((const char *)data, len);
        }
    }
    return NULL;
}

const DeviceSection *device_sections_find(const DeviceSections *s,
                                          const char *name, uint32_t instance,
                                          unsigned first)
{
    const GArray *list = s->list;

    for (unsigned i = 0; i < list->len; i++) {
        const DeviceSection *section = &g_array_index(list, DeviceSection,
                                                      (first + i) % list->len);

        if (section->instance == instance &&
            !strcmp(section->desc->name, name)) {
            return section;
        }
    }
    return NULL;
}

void device_sections_clear(DeviceSections *s)
{
    g_clear_pointer(&s->description, vmdesc_free);
    g_clear_pointer(&s->list, g_array_unref);
    g_clear_pointer(&s->data, g_free);
}
