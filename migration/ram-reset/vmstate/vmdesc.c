/*
 * The description at the end of a saved VM state
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/bswap.h"
#include "qemu/cutils.h"
#include "migration/ram-reset/vmstate/format.h"
#include "migration/ram-reset/vmstate/vmdesc.h"

/* The unread JSON from @at to @end, where a 0 is, and the nodes */
typedef struct Text {
    char *at, *end;
    unsigned depth;
    VMDesc *nodes;
    size_t used, most;
} Text;

/* The ends of the two lists of an object */
typedef struct Lists {
    VMDesc **fields, **subsections;
} Lists;

static bool is_printable(uint8_t c)
{
    return c >= 0x20 && c < 0x7f;
}

const char *vmdesc_find(const uint8_t *buf, size_t len)
{
    size_t first = len;

    if (len <= VMDESC_MARKS || buf[len - 1] != '}') {
        return NULL;
    }
    while (first && is_printable(buf[first - 1])) {
        first--;
    }
    for (size_t i = MAX(first, VMDESC_MARKS);
         i < len && i <= first + sizeof(uint32_t); i++) {
        const uint8_t *marks = buf + i - VMDESC_MARKS;

        if (marks[0] == QEMU_VM_EOF && marks[1] == QEMU_VM_VMDESCRIPTION &&
            ldl_be_p(marks + 2) == len - i && buf[i] == '{') {
            return (const char *)buf + i;
        }
    }
    return NULL;
}

/* Returns NULL if a text of this length cannot have so many objects */
static VMDesc *vmdesc_new(Text *t)
{
    VMDesc *d = t->used < t->most ? &t->nodes[t->used++] : NULL;

    if (d) {
        *d = (VMDesc) { .len = 1, .index = -1 };
    }
    return d;
}

/* Read @c if it comes next, or return false */
static bool text_accept(Text *t, char c)
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

/*
 * A 0 replaces the second quote.  Escapes are not resolved: names have none.
 */
static const char *read_string(Text *t)
{
    char *start, *p;

    if (!text_accept(t, '"')) {
        return NULL;
    }
    start = t->at;
    for (p = start; p < t->end && *p != '"'; p++) {
        p += *p == '\\';
    }
    if (p >= t->end) {
        return NULL;
    }
    *p = 0;
    t->at = p + 1;
    return start;
}

static bool read_number(Text *t, int64_t *number)
{
    const char *end;

    if (!text_accept(t, ':') || qemu_strtoi64(t->at, &end, 10, number)) {
        return false;
    }
    t->at = (char *)end;
    return true;
}

static bool read_text(Text *t, const char **text)
{
    *text = text_accept(t, ':') ? read_string(t) : NULL;
    return *text;
}

static VMDesc *read_object(Text *t);

/* Append the objects of a list at @end, and move @end to the end of the list */
static bool read_list(Text *t, VMDesc ***end)
{
    if (!text_accept(t, ':') || !text_accept(t, '[')) {
        return false;
    }
    if (text_accept(t, ']')) {
        return true;
    }
    do {
        VMDesc *d = read_object(t);

        if (!d) {
            return false;
        }
        **end = d;
        *end = &d->next;
    } while (text_accept(t, ','));
    return text_accept(t, ']');
}

static bool read_inside(Text *t, const VMDesc **inside)
{
    *inside = text_accept(t, ':') ? read_object(t) : NULL;
    return *inside;
}

/* Skip a member with another name: a string, a number, or an object */
static bool skip_member(Text *t)
{
    const VMDesc *d;
    const char *text;
    int64_t number;
    Text before = *t;

    if (read_text(t, &text)) {
        return true;
    }
    *t = before;
    if (read_number(t, &number)) {
        return true;
    }
    *t = before;
    return read_inside(t, &d);
}

static bool read_member(Text *t, VMDesc *d, Lists *lists)
{
    const char *key = read_string(t);

    if (!key) {
        return false;
    } else if (!strcmp(key, "name")) {
        return read_text(t, &d->name);
    } else if (!strcmp(key, "vmsd_name")) {
        return read_text(t, &d->vmsd);
    } else if (!strcmp(key, "instance_id")) {
        return read_number(t, &d->instance);
    } else if (!strcmp(key, "size")) {
        return read_number(t, &d->size);
    } else if (!strcmp(key, "array_len")) {
        return read_number(t, &d->len);
    } else if (!strcmp(key, "index")) {
        return read_number(t, &d->index);
    } else if (!strcmp(key, "struct")) {
        return read_inside(t, &d->inside);
    } else if (!strcmp(key, "fields") || !strcmp(key, "devices")) {
        return read_list(t, &lists->fields);
    } else if (!strcmp(key, "subsections")) {
        return read_list(t, &lists->subsections);
    }
    return skip_member(t);
}

static int64_t field_size(const VMDesc *field)
{
    if (field->size < 0 || field->size > VMDESC_MAX_SIZE || field->len < 0 ||
        field->len > VMDESC_MAX_SIZE / (field->size + 1)) {
        return -1;
    }
    return field->size * field->len;
}

static int64_t content_size(const VMDesc *d)
{
    int64_t size = 0;

    for (const VMDesc *field = d->fields; field; field = field->next) {
        int64_t more = field_size(field);

        if (more < 0 || more > VMDESC_MAX_SIZE - size) {
            return -1;
        }
        size += more;
    }
    for (const VMDesc *sub = d->subsections; sub; sub = sub->next) {
        int64_t head = vmdesc_head_size(sub);

        if (sub->content < 0 || sub->content > VMDESC_MAX_SIZE - size - head) {
            return -1;
        }
        size += head + sub->content;
    }
    return size;
}

static VMDesc *read_object(Text *t)
{
    VMDesc *d = t->depth < VMDESC_MAX_DEPTH ? vmdesc_new(t) : NULL;
    Lists lists;
    bool ok = d && text_accept(t, '{');

    if (!ok) {
        return NULL;
    }
    lists = (Lists) { &d->fields, &d->subsections };
    t->depth++;
    if (!text_accept(t, '}')) {
        do {
            ok = read_member(t, d, &lists);
        } while (ok && text_accept(t, ','));
        ok = ok && text_accept(t, '}');
    }
    t->depth--;
    d->content = content_size(d);
    return ok ? d : NULL;
}

static GArray *find_cpus(const VMDesc *devices)
{
    GArray *cpus = g_array_new(false, false, sizeof(uint32_t));

    for (const VMDesc *d = devices; d; d = d->next) {
        uint32_t index = d->instance;

        if (!g_strcmp0(d->name, "cpu_common")) {
            g_array_append_val(cpus, index);
        }
    }
    return cpus;
}

VMDescription *vmdesc_parse(const char *text, size_t len)
{
    g_autoptr(VMDescription) all = g_new0(VMDescription, 1);
    Text t = { .most = len / VMDESC_MIN_OBJECT + VMDESC_MIN_NODES };
    const VMDesc *d;

    all->text = g_try_malloc(len + 1);
    all->nodes = g_try_new(VMDesc, t.most);
    if (!all->text || !all->nodes) {
        return NULL;
    }
    memcpy(all->text, text, len);
    all->text[len] = 0;
    t.at = all->text;
    t.end = all->text + len;
    t.nodes = all->nodes;
    d = read_object(&t);
    if (!d || t.at != t.end) {
        return NULL;
    }
    all->devices = d->fields;
    all->cpus = find_cpus(all->devices);
    return g_steal_pointer(&all);
}

void vmdesc_free(VMDescription *description)
{
    if (description) {
        g_free(description->text);
        g_free(description->nodes);
        g_clear_pointer(&description->cpus, g_array_unref);
        g_free(description);
    }
}

int64_t vmdesc_head_size(const VMDesc *subsection)
{
    return SUBSECTION_HEAD + strlen(subsection->vmsd ?: "");
}
