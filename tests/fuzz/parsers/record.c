/*
 * Fuzzed: the record of a hugepage file
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/bitmap.h"
#include "system/ram-reset/hugefile/record.h"
#include "target.h"

#define CHECKSUM "sha256="

/* A byte for each page that a record may have */
const size_t target_memory = (16 << 20) + (1 << 20);

static int file_with(const uint8_t *data, size_t size)
{
    int fd = memfd_create("record", MFD_CLOEXEC);

    if (fd < 0 || pwrite(fd, data, size, 0) != size) {
        g_error("no memory for a file");
    }
    return fd;
}

/* A record that has been read is written, and read again */
static void check_again(const HugeRecord *rec)
{
    HugeRecord again = {};
    int fd = file_with(NULL, 0);

    if (rec->pages <= 4096 && !strpbrk(rec->boot_id, "\\\n\r\t ") &&
        (hugefile_record_write(fd, rec) ||
            !hugefile_record_read(fd, &again, NULL) ||
            again.pages != rec->pages ||
            memcmp(again.dirty, rec->dirty,
                   BITS_TO_LONGS(rec->pages) * sizeof(rec->dirty[0])))) {
        fuzz_fail("a record is not read as it was written");
    }
    hugefile_record_clear(&again);
    close(fd);
}

void target_run(const uint8_t *data, size_t size)
{
    HugeRecord rec = {};
    g_autoptr(Error) err = NULL;
    int fd = file_with(data, size);
    bool ok = hugefile_record_read(fd, &rec, &err);

    if (ok == (err != NULL)) {
        fuzz_fail("a refusal has no reason");
    }
    if (rec.pages) {
        check_again(&rec);
    }
    hugefile_record_clear(&rec);
    close(fd);
}

void target_repair(GByteArray *input)
{
    size_t end = input->len;
    g_autofree char *sum = NULL, *line = NULL;
    const uint8_t *old = g_memdup2(input->data, input->len);
    const char *found = g_strrstr_len((const char *)old, end, CHECKSUM);

    if (found) {
        end = (const uint8_t *)found - old;
    }
    g_free((void *)old);
    g_byte_array_set_size(input, end);
    sum = g_compute_checksum_for_data(G_CHECKSUM_SHA256, input->data, end);
    line = g_strdup_printf(CHECKSUM "%s\n", sum);
    g_byte_array_append(input, (uint8_t *)line, strlen(line));
}

void target_seed(GByteArray *input)
{
    unsigned long dirty[] = { 0x13 };
    HugeRecord rec = {
        .boot_id = (char *)"0", .page_size = 2 << 20, .pages = 8,
        .dirty = dirty,
    };
    int fd = file_with(NULL, 0);
    uint8_t buf[4096];
    ssize_t len;

    if (hugefile_record_write(fd, &rec)) {
        g_error("a record cannot be written");
    }
    len = pread(fd, buf, sizeof(buf), 0);
    g_byte_array_append(input, buf, len);
    close(fd);
}
