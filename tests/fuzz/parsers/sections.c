/*
 * Fuzzed: the sections of devices, and their comparison with a machine's
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qapi/error.h"
#include "qemu/bswap.h"
#include "qapi/qapi-builtin-types.h"
#include "migration/ram-reset-device-state.h"
#include "migration/ram-reset-verify-devices.h"
#include "migration/ram-reset-verify-except.h"
#include "savevm.h"
#include "target.h"

/* The first byte of an input: whether sections have footers */
#define FOOTERS 1

/* The largest content of sections that target_repair() makes */
#define MOST_CONTENT (64 << 10)

const size_t target_memory = 1 << 20;

static SectionBytes input_bytes;
static GByteArray *machine;

/* An input that is in order is what the machine has; no image says that */
static void take_machine(void)
{
    if (!machine) {
        machine = g_byte_array_new();
        target_seed(machine);
    }
}

bool saved_devices_read(SavedDevices *d, BlockDriverState *bs,
                        const QEMUSnapshotInfo *sn, int64_t from, Error **errp)
{
    return device_sections_read(&d->sections, &input_bytes, errp);
}

bool saved_devices_save(SavedDevices *d, Error **errp)
{
    SectionBytes bytes = { "the machine", machine->data + 1, machine->len - 1,
                           machine->data[0] & FOOTERS };

    return device_sections_read(&d->sections, &bytes, errp);
}

void saved_devices_clear(SavedDevices *d)
{
    device_sections_clear(&d->sections);
}

const DeviceSection *saved_devices_find(const SavedDevices *d,
                                        const char *name, uint32_t instance,
                                        unsigned first)
{
    for (unsigned i = 0; i < d->sections.list->len; i++) {
        const DeviceSection *s = &g_array_index(d->sections.list,
                                                DeviceSection, i);

        if (s->instance == instance && !strcmp(s->desc->name, name)) {
            return s;
        }
    }
    return NULL;
}

bool ram_reset_may_differ(const char *vmsd, const char *field, uint64_t byte,
                          uint8_t bits)
{
    return vmsd && strlen(vmsd) % 4 == 1;
}

bool ram_reset_load_what_saves_change(const SavedDevices *snapshot,
                                      Error **errp)
{
    return true;
}

/* Sections follow each other, from the footer of RAM to the end mark */
static void check(const DeviceSections *all, const SectionBytes *bytes)
{
    size_t at = 0;

    for (unsigned i = 0; i < all->list->len; i++) {
        const DeviceSection *s = &g_array_index(all->list, DeviceSection, i);

        if (s->start < at || s->end <= s->start || s->end > bytes->len ||
            s->data < bytes->data + s->start || s->len != s->desc->content ||
            s->data + s->len > bytes->data + s->end) {
            fuzz_fail("a section is not where its bytes are");
        }
        at = s->end;
    }
}

void target_run(const uint8_t *data, size_t size)
{
    DeviceSections all = {};
    Error *err = NULL;

    if (!size) {
        return;
    }
    take_machine();
    input_bytes = (SectionBytes) { "the snapshot", data + 1, size - 1,
                                   data[0] & FOOTERS };
    if (device_sections_read(&all, &input_bytes, &err)) {
        check(&all, &input_bytes);
    } else if (!err) {
        fuzz_fail("a refusal has no reason");
    }
    device_sections_clear(&all);
    error_free(err);
    err = NULL;
    if (ram_reset_check_devices(NULL, NULL, 1, &err) == (err != NULL)) {
        fuzz_fail("a difference has no name");
    }
    error_free(err);
}

/* Appends the section that @d describes, with some content */
static void put_section(GByteArray *out, const VMDesc *d, unsigned nr,
                        bool footers)
{
    size_t name = strnlen(d->name, UINT8_MAX);
    uint8_t head[] = { QEMU_VM_SECTION_FULL, 0, 0, 0, 0, name };
    uint8_t rest[8], footer = QEMU_VM_SECTION_FOOTER;

    stl_be_p(head + 1, nr);
    stl_be_p(rest, d->instance);
    stl_be_p(rest + 4, 1);
    g_byte_array_append(out, head, sizeof(head));
    g_byte_array_append(out, (const uint8_t *)d->name, name);
    g_byte_array_append(out, rest, sizeof(rest));
    g_byte_array_set_size(out, out->len + d->content);
    memset(out->data + out->len - d->content, nr, d->content);
    if (footers) {
        g_byte_array_append(out, &footer, 1);
        g_byte_array_append(out, head + 1, 4);
    }
}

static void put_all(GByteArray *out, const char *text, size_t len,
                    bool footers)
{
    static const uint8_t ram[] = { QEMU_VM_SECTION_FOOTER, 0, 0, 0, 2 };
    uint8_t marks[] = { QEMU_VM_EOF, QEMU_VM_VMDESCRIPTION, 0, 0, 0, 0 };
    g_autoptr(VMDescription) all = vmdesc_parse(text, len);
    unsigned nr = 3;

    g_byte_array_append(out, ram, footers ? sizeof(ram) : 0);
    for (const VMDesc *d = all ? all->devices : NULL; d; d = d->next) {
        if (d->name && d->content >= 0 && d->content < MOST_CONTENT &&
            strlen(d->name) <= UINT8_MAX && out->len < 1 << 25) {
            put_section(out, d, nr++, footers);
        }
    }
    stl_be_p(marks + 2, len);
    g_byte_array_append(out, marks, sizeof(marks));
    g_byte_array_append(out, (const uint8_t *)text, len);
}

/* Sections as the text describes them */
void target_repair(GByteArray *input)
{
    g_autofree uint8_t *old = g_memdup2(input->data, input->len);
    size_t len = input->len;

    for (size_t at = len; at-- > 7; ) {
        if (old[at] == '{' && !old[at - 6] &&
            old[at - 5] == QEMU_VM_VMDESCRIPTION) {
            g_byte_array_set_size(input, 1);
            put_all(input, (const char *)old + at, len - at,
                    old[0] & FOOTERS);
            return;
        }
    }
}

void target_seed(GByteArray *input)
{
    static const char text[] =
        "{\"page_size\": 4096, \"devices\": [{\"name\": \"early\", "
        "\"instance_id\": 0}, {\"name\": \"rtc\", "
        "\"instance_id\": 0, \"vmsd_name\": \"rtc\", \"version\": 2, "
        "\"fields\": [{\"name\": \"a\", \"array_len\": 3, \"type\": \"int64\", "
        "\"size\": 8}, {\"name\": \"s\", \"index\": 1, \"type\": \"struct\", "
        "\"struct\": {\"vmsd_name\": \"t\", \"version\": 1, \"fields\": ["
        "{\"name\": \"x\", \"type\": \"q\", \"size\": 2}]}, \"size\": 2}], "
        "\"subsections\": [{\"vmsd_name\": \"rtc/icount\", "
        "\"version\": 1, \"fields\": [{\"name\": \"data\", \"size\": 1, "
        "\"type\": \"buffer\"}]}]}, {\"name\": \"cpu\", \"instance_id\": 1, "
        "\"vmsd_name\": \"cpu\", \"version\": 1, \"fields\": [{\"name\": "
        "\"regs\", \"size\": 64, \"type\": \"buffer\"}]}]}";
    const uint8_t footers = FOOTERS;

    g_byte_array_append(input, &footers, 1);
    put_all(input, text, strlen(text), true);
}
