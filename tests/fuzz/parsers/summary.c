/*
 * Fuzzed: a VM state from its first byte, for its summary and for RAM
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "vmstub.h"
#include "qapi/error.h"
#include "qemu/bitmap.h"
#include "qemu/bswap.h"
#include "migration/ram-reset/vmstate/format.h"
#include "migration/ram-reset/vmstate/stream.h"
#include "migration/ram-reset/vmstate/summary.h"
#include "migration.h"
#include "options.h"
#include "qemu-file.h"
#include "target.h"

/* The largest size of a RAM block of this machine */
#define MOST_RAM    (UINT64_C(16) << 20)

/* The first byte of an input: how this QEMU is set up */
enum {
    IGNORE_SHARED = 1,
    MAPPED_RAM = 2,
    WRONG_SIZE = 4,
};

const size_t target_memory = 1 << 20;

static uint8_t setup;

bool migrate_ignore_shared(void)
{
    return setup & IGNORE_SHARED;
}

bool migrate_mapped_ram(void)
{
    return setup & MAPPED_RAM;
}

static bool add_block(void *opaque, const char *name, uint64_t len,
                      Error **errp)
{
    if (len > MOST_RAM) {
        error_setg(errp, "this machine has no such block");
    }
    return len <= MOST_RAM;
}

static bool add_pages(void *opaque, const char *name, uint64_t offset,
                      const uint8_t *data, uint64_t len, Error **errp)
{
    uint64_t *sum = opaque;

    for (uint64_t i = 0; data && i < len; i++) {
        *sum += data[i];
    }
    if (offset > MOST_RAM || len > MOST_RAM - offset) {
        error_setg(errp, "this machine has no such page");
        return false;
    }
    return true;
}

static bool add_stored(void *opaque, const char *name, uint64_t len,
                       const unsigned long *bitmap, Error **errp)
{
    uint64_t *sum = opaque;

    *sum += find_first_bit(bitmap, len >> 12);
    return true;
}

static void walk_ram(void)
{
    static const RamStreamVisitor visitor = {
        .block = add_block, .pages = add_pages, .stored = add_stored,
    };
    uint64_t sum = 0;
    Error *err = NULL;
    QEMUFile *f = ram_stream_open(vmstub_image());
    RamStreamResult res = ram_stream_walk(f, &visitor, &sum, &err);

    if ((res == RAM_STREAM_DONE) != !err) {
        fuzz_fail("a walk that failed has no error");
    }
    error_free(err);
    qemu_fclose(f);
}

static void read_summary(void)
{
    QEMUSnapshotInfo sn = {
        .name = "s",
        .vm_state_size = setup & WRONG_SIZE ? vmstub_size * 0x1000001
                                            : vmstub_size,
    };
    Error *err = NULL;
    RamResetSummary *s = ram_reset_summary_read(vmstub_image(), &sn, true,
                                                &err);

    if (!s == !err) {
        fuzz_fail("a summary is there with an error, or neither");
    }
    if (s) {
        ram_reset_summary_free(s);
    }
    error_free(err);
}

void target_run(const uint8_t *data, size_t size)
{
    if (!size) {
        return;
    }
    setup = data[0];
    vmstub_data = data + 1;
    vmstub_size = size - 1;
    read_summary();
    walk_ram();
}

/* The length of the description, if there is one */
void target_repair(GByteArray *input)
{
    for (size_t at = input->len; at-- > 7; ) {
        if (input->data[at] == '{' && !input->data[at - 6] &&
            input->data[at - 5] == QEMU_VM_VMDESCRIPTION) {
            stl_be_p(input->data + at - 4, input->len - at);
            return;
        }
    }
}

/* A machine, RAM of two pages in one block, and a CPU */
void target_seed(GByteArray *input)
{
    static const uint8_t head[] =
        "\0QEVM\0\0\0\3\7\0\0\0\2pc\5\x1a" "configuration/capabilities"
        "\0\0\0\1\0\0\0\1\xfx-ignore-shared"
        "\1\0\0\0\2\3ram\0\0\0\0\0\0\0\4"
        "\0\0\0\0\0\0\x20\4\3ram\0\0\0\0\0\0\x20\0\0\0\0\0\0\0\0\0"
        "\0\0\0\0\0\0\0\x10\x7e\0\0\0\2"
        "\3\0\0\0\2\0\0\0\0\0\0\0\2\3ram\0\0\0\0\0\0\0\x10\x22\0"
        "\0\0\0\0\0\0\0\x10\x7e\0\0\0\2"
        "\x8\0\7\0\0\2\0\0\0\2\0\0\0\0\0\0\0\x10\x7e\0\0\0\2"
        "\0\6\0\0\0\0{\"page_size\": 4096, \"devices\": [{\"name\": "
        "\"cpu_common\", \"instance_id\": 0, \"vmsd_name\": \"cpu_common\", "
        "\"version\": 1, \"fields\": []}]}";

    g_byte_array_append(input, head, sizeof(head) - 1);
    target_repair(input);
}
