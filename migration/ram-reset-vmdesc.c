/*
 * The description that a saved VM state ends with
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qapi/qapi-builtin-types.h"
#include "qemu/bswap.h"
#include "qemu/cutils.h"
#include "savevm.h"
#include "migration/ram-reset-vmdesc.h"

/* A mark, the length, and the text, which ends with the VM state */
#define MARKS   (2 + sizeof(uint32_t))

/* A mark, the length of the name, and the version */
#define SUBSECTION_HEAD     (2 + sizeof(uint32_t))

/* What a damaged description may ask for */
#define MAX_DEPTH   64
#define MAX_SIZE    (1LL << 40)

/* The JSON that is left to be read */
typedef struct Text {
    const char *at, *end;
    unsigned depth;
} Text;

/* The last one: what is before may be a guest's bytes, and JSON has no EOF */
const char *vmdesc_find(const uint8_t *buf, size_t len)
{
    for (size_t i = len < MARKS ? 0 : len - MARKS; i--; ) {
        if (buf[i] == QEMU_VM_EOF && buf[i + 1] == QEMU_VM_VMDESCRIPTION &&
            ldl_be_p(buf + i + 2) == len - i - MARKS &&
            buf[i + MARKS] == '{') {
            return (const char *)buf + i + MARKS;
        }
    }
    return NULL;
}

const char *vmdesc_find_first(const uint8_t *buf, size_t len, size_t *text_len)
{
    for (size_t i = 0; i + MARKS < len; i++) {
        uint32_t size = ldl_be_p(buf + i + 2);

        if (buf[i] == QEMU_VM_EOF && buf[i + 1] == QEMU_VM_VMDESCRIPTION &&
            buf[i + MARKS] == '{' && size <= len - i - MARKS &&
            buf[i + MARKS + size - 1] == '}') {
            *text_len = size;
            return (const char *)buf + i + MARKS;
        }
    }
    return NULL;
}

static void vmdesc_free(gpointer opaque)
{
    VMDesc *d = opaque;

    if (d) {
        g_free(d->name);
        g_free(d->vmsd);
        vmdesc_free(d->inside);
        g_ptr_array_unref(d->fields);
        g_ptr_array_unref(d->subsections);
        g_free(d);
    }
}

static VMDesc *vmdesc_new(void)
{
    VMDesc *d = g_new0(VMDesc, 1);

    d->len = 1;
    d->index = -1;
    d->fields = g_ptr_array_new_with_free_func(vmdesc_free);
    d->subsections = g_ptr_array_new_with_free_func(vmdesc_free);
    return d;
}

/* Whether @c comes next; it has been read then */
static bool take(Text *t, char c)
{
    while (t->at < t->end && g_ascii_isspace(*t->at)) {
        t->at++;
    }
    if (t->at < t->end && *t->at == c) {
        t->at++;
        return true;
    }
    return false;
}

/* Names have nothing that has to be escaped */
static char *take_string(Text *t)
{
    const char *start, *quote;

    if (!take(t, '"')) {
        return NULL;
    }
    start = t->at;
    quote = memchr(start, '"', t->end - start);
    if (!quote) {
        return NULL;
    }
    t->at = quote + 1;
    return g_strndup(start, quote - start);
}

static bool take_number(Text *t, int64_t *number)
{
    /* It ends before the text does, which is with a brace */
    return take(t, ':') && t->at < t->end &&
           !qemu_strtoi64(t->at, &t->at, 10, number) && t->at <= t->end;
}

static bool take_text(Text *t, char **text)
{
    g_free(*text);
    *text = take(t, ':') ? take_string(t) : NULL;
    return *text;
}

static VMDesc *take_object(Text *t);

static bool take_list(Text *t, GPtrArray *list)
{
    if (!take(t, ':') || !take(t, '[')) {
        return false;
    }
    if (take(t, ']')) {
        return true;
    }
    do {
        VMDesc *d = take_object(t);

        if (!d) {
            return false;
        }
        g_ptr_array_add(list, d);
    } while (take(t, ','));
    return take(t, ']');
}

static bool take_inside(Text *t, VMDesc **inside)
{
    vmdesc_free(*inside);
    *inside = take(t, ':') ? take_object(t) : NULL;
    return *inside;
}

/* What is not needed: a string, a number, or an object of what is known */
static bool take_other(Text *t)
{
    g_autofree char *text = NULL;
    VMDesc *d = NULL;
    int64_t number;
    Text before = *t;
    bool ok;

    if (take_text(t, &text)) {
        return true;
    }
    *t = before;
    if (take_number(t, &number)) {
        return true;
    }
    *t = before;
    ok = take_inside(t, &d);
    vmdesc_free(d);
    return ok;
}

static bool take_member(Text *t, VMDesc *d)
{
    g_autofree char *key = take_string(t);

    if (!key) {
        return false;
    } else if (!strcmp(key, "name")) {
        return take_text(t, &d->name);
    } else if (!strcmp(key, "vmsd_name")) {
        return take_text(t, &d->vmsd);
    } else if (!strcmp(key, "instance_id")) {
        return take_number(t, &d->instance);
    } else if (!strcmp(key, "size")) {
        return take_number(t, &d->size);
    } else if (!strcmp(key, "array_len")) {
        return take_number(t, &d->len);
    } else if (!strcmp(key, "index")) {
        return take_number(t, &d->index);
    } else if (!strcmp(key, "struct")) {
        return take_inside(t, &d->inside);
    } else if (!strcmp(key, "fields") || !strcmp(key, "devices")) {
        return take_list(t, d->fields);
    } else if (!strcmp(key, "subsections")) {
        return take_list(t, d->subsections);
    }
    return take_other(t);
}

static VMDesc *take_object(Text *t)
{
    VMDesc *d = vmdesc_new();
    bool ok = ++t->depth < MAX_DEPTH && take(t, '{');

    if (ok && !take(t, '}')) {
        do {
            ok = take_member(t, d);
        } while (ok && take(t, ','));
        ok = ok && take(t, '}');
    }
    t->depth--;
    if (!ok) {
        vmdesc_free(d);
        return NULL;
    }
    return d;
}

GPtrArray *vmdesc_parse(const char *text, size_t len)
{
    Text t = { .at = text, .end = text + len };
    VMDesc *d = len && text[len - 1] == '}' ? take_object(&t) : NULL;
    GPtrArray *devices = d ? g_ptr_array_ref(d->fields) : NULL;

    vmdesc_free(d);
    return devices;
}

int64_t vmdesc_head_size(const VMDesc *subsection)
{
    return SUBSECTION_HEAD + strlen(subsection->vmsd ?: "");
}

int64_t vmdesc_size(const VMDesc *d)
{
    int64_t size = 0;

    for (unsigned i = 0; i < d->fields->len; i++) {
        const VMDesc *field = g_ptr_array_index(d->fields, i);

        if (field->size < 0 || field->size > MAX_SIZE || field->len < 0 ||
            field->len > MAX_SIZE / (field->size + 1)) {
            return -1;
        }
        size += field->size * field->len;
        if (size > MAX_SIZE) {
            return -1;
        }
    }
    for (unsigned i = 0; i < d->subsections->len; i++) {
        const VMDesc *sub = g_ptr_array_index(d->subsections, i);
        int64_t inside = vmdesc_size(sub);

        if (inside < 0) {
            return -1;
        }
        size += vmdesc_head_size(sub) + inside;
    }
    return size < 0 || size > MAX_SIZE ? -1 : size;
}
