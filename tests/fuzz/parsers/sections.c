/*
 * Fuzzed: the sections of devices, and their comparison with a machine's
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "vmstub.h"
#include "qapi/error.h"
#include "qemu/bswap.h"
#include "migration.h"
#include "migration/ram-reset/verify/devices.h"
#include "migration/ram-reset/verify/exceptions.h"
#include "migration/ram-reset/verify/save-devices.h"
#include "migration/ram-reset/vmstate/format.h"
#include "target.h"

/* The first byte of an input: whether sections have footers */
#define FOOTERS 1

/* The largest content of sections that target_repair() makes */
#define MOST_CONTENT (64 << 10)

const size_t target_memory = 1 << 20;

static GByteArray *machine;

/* An input that is in order is what the machine has; no image says that */
static void take_machine(void)
{
    if (!machine) {
        machine = g_byte_array_new();
        target_seed(machine);
    }
}

bool ram_reset_save_devices(DeviceSections *s, Error **errp)
{
    SectionBytes bytes = {
        .what = "the machine",
        .data = machine->data + 1,
        .len = machine->len - 1,
        .footers = machine->data[0] & FOOTERS,
    };

    return device_sections_read(s, &bytes, errp);
}

bool ram_reset_may_differ(const char *vmsd, const char *field, uint64_t byte,
                          uint8_t bits)
{
    return vmsd && strlen(vmsd) % 4 == 1;
}

bool ram_reset_undo_save_changes(const DeviceSections *snapshot,
                                 Error **errp)
{
    return true;
}

/* Sections follow each other, from the footer of RAM to the end mark */
static void check(const DeviceSections *all, size_t size)
{
    size_t at = 0;

    for (unsigned i = 0; i < all->list->len; i++) {
        const DeviceSection *s = &g_array_index(all->list, DeviceSection, i);

        if (s->start < at || s->end <= s->start || s->end > size ||
            s->data < all->data + s->start || s->len != s->desc->content ||
            s->data + s->len > all->data + s->end ||
            device_sections_find(all, s->desc->name, s->instance, i) != s) {
            fuzz_fail("a section is not where its bytes are");
        }
        at = s->end;
    }
}

void target_run(const uint8_t *data, size_t size)
{
    QEMUSnapshotInfo sn = { .vm_state_size = size };
    DeviceSections all = {};
    Error *err = NULL;

    if (!size) {
        return;
    }
    take_machine();
    vmstub_data = data;
    vmstub_size = size;
    migrate_get_current()->send_section_footer = data[0] & FOOTERS;
    if (device_sections_load(&all, vmstub_image(), size, 1, &err)) {
        check(&all, size - 1);
    } else if (!err) {
        fuzz_fail("a refusal has no reason");
    }
    device_sections_clear(&all);
    error_free(err);
    err = NULL;
    if (ram_reset_check_devices(vmstub_image(), &sn, NULL, 1, &err) ==
        (err != NULL)) {
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
