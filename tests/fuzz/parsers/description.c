/*
 * Fuzzed: the description that a VM state ends with
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/bswap.h"
#include "migration/ram-reset/vmstate/format.h"
#include "migration/ram-reset/vmstate/vmdesc.h"
#include "target.h"

#define MOST_DEPTH 64

const size_t target_memory = 1 << 20;

/* Returns the number of nodes below @list, of a text of @len bytes */
static size_t count(const VMDesc *list, size_t len, unsigned depth)
{
    size_t nr = 0;

    for (const VMDesc *d = list; d; d = d->next) {
        if (depth > MOST_DEPTH || d->content < -1 ||
            (d->name && strlen(d->name) > len) ||
            (d->vmsd && strlen(d->vmsd) > len)) {
            fuzz_fail("an object makes no sense");
        }
        nr += 1 + count(d->fields, len, depth + 1) +
              count(d->subsections, len, depth + 1) +
              count(d->inside, len, depth + 1);
    }
    return nr;
}

static void parse(const char *text, size_t len)
{
    g_autoptr(VMDescription) all = vmdesc_parse(text, len);

    if (all && count(all->devices, len, 0) > len / 2) {
        fuzz_fail("there are more objects than the text can have");
    }
}

/* A description is found if it is there, whatever a guest has put before it */
static void find(const uint8_t *data, size_t len)
{
    const size_t marks = VMDESC_MARKS;
    g_autofree uint8_t *state = g_malloc(2 * len + 2 * marks);
    uint8_t *at = state;
    const char *text = vmdesc_find(data, len);
    bool whole = len > 1 && data[0] == '{' && data[len - 1] == '}';

    if (text && (text < (char *)data + marks || text >= (char *)data + len)) {
        fuzz_fail("a description is found where there is none");
    }
    for (unsigned i = 0; i < 2; i++) {
        at[0] = QEMU_VM_EOF;
        at[1] = QEMU_VM_VMDESCRIPTION;
        stl_be_p(at + 2, i ? len : 2 * len + marks);
        memcpy(at + marks, data, len);
        at += marks + len;
    }
    for (size_t i = 0; i < len; i++) {
        whole &= data[i] >= 0x20 && data[i] < 0x7f;
    }
    text = vmdesc_find(state, at - state);
    if (whole && text != (char *)at - len) {
        fuzz_fail("the description is not found");
    }
}

void target_run(const uint8_t *data, size_t size)
{
    parse((const char *)data, size);
    find(data, size);
}

/* A number in front of the text, for inputs that have marks */
void target_repair(GByteArray *input)
{
    const char *text = memchr(input->data, '{', input->len);
    size_t at = text ? (const uint8_t *)text - input->data : 0;

    if (at >= VMDESC_MARKS) {
        stl_be_p(input->data + at - sizeof(uint32_t), input->len - at);
    }
}

void target_seed(GByteArray *input)
{
    static const char text[] =
        "{\"configuration\": {\"vmsd_name\": \"c\", \"version\": 1, "
        "\"fields\": [{\"name\": \"len\", \"type\": \"u\", \"size\": 4}]}, "
        "\"page_size\": 4096, \"devices\": [{\"name\": \"timer\", "
        "\"instance_id\": 0, \"vmsd_name\": \"timer\", \"version\": 2, "
        "\"fields\": [{\"name\": \"a\", \"array_len\": 3, \"type\": \"int64\", "
        "\"size\": 8}, {\"name\": \"s\", \"index\": 1, \"type\": \"struct\", "
        "\"struct\": {\"vmsd_name\": \"t\", \"version\": 1, \"fields\": []}, "
        "\"fields\": [{\"name\": \"x\", \"type\": \"q\", \"size\": 1}], "
        "\"size\": 2}], \"subsections\": [{\"vmsd_name\": \"timer/icount\", "
        "\"version\": 1, \"fields\": [{\"name\": \"data\", \"size\": 1, "
        "\"type\": \"buffer\"}]}]}]}";

    g_byte_array_append(input, (const uint8_t *)text, strlen(text));
}
