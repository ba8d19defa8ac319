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
#include "migration/ram-reset-vmdesc.h"

/* The footer of a section: a byte and the section's number */
#define FOOTER 5

/* Whether @s is at s->start; sets s->end if it is */
static bool is_there(SectionPlace *s, const uint8_t *data, size_t end)
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
        SectionPlace *s = g_ptr_array_index(sections, i);

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

static void free_section(gpointer p)
{
    SectionPlace *s = p;

    g_free(s->id);
    g_free(s);
}

static GPtrArray *described_sections(const char *text, const char *end)
{
    g_autoptr(GPtrArray) descs = vmdesc_parse(text, end - text);
    g_autoptr(GPtrArray) sections =
        g_ptr_array_new_with_free_func(free_section);

    for (int i = 0; descs && i < descs->len; i++) {
        const VMDesc *desc = g_ptr_array_index(descs, i);
        int64_t size = vmdesc_size(desc);
        SectionPlace *s;

        if (!desc->name || size < 0) {
            return NULL;
        }
        s = g_new0(SectionPlace, 1);
        s->id = g_strdup(desc->name);
        s->instance = desc->instance;
        s->size = size;
        g_ptr_array_add(sections, s);
    }
    return descs ? g_steal_pointer(&sections) : NULL;
}

GPtrArray *ram_reset_device_sections(const uint8_t *data, size_t size)
{
    const char *text = vmdesc_find(data, size);
    g_autoptr(GPtrArray) sections = NULL;

    if (!text || data[0] != QEMU_VM_SECTION_FOOTER) {
        return NULL;
    }
    sections = described_sections(text, (const char *)data + size);
    /* The mark of the end, that of the description, and its length */
    if (!sections ||
        !find_all(sections, data, (const uint8_t *)text - data - 6)) {
        return NULL;
    }
    return g_steal_pointer(&sections);
}
