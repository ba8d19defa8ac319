/*
 * Fuzzed: the head and the index of a template
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "system/ram-reset/template/file-internal.h"
#include "target.h"

#define PAGE UINT64_C(4096)

const size_t target_memory = 1 << 20;

/* No RAM is read, so a file has any size and no blocks */
#define MOST_SIZE (INT64_C(1) << 50)

static char path[] = "/tmp/fuzz-template-XXXXXX";
static int dir = -1;

static void remove_all(void)
{
    rmdir(path);
}

static void check(const TemplateFile *f)
{
    for (unsigned i = 0; i < f->blocks->len; i++) {
        const TemplateBlock *b = template_file_block(f, i);
        uint64_t end = 0;

        if (b->offset + b->len < b->offset || b->offset + b->len > f->size ||
            b->len > template_file_room(f, i)) {
            fuzz_fail("a block is not in the file");
        }
        for (unsigned j = 0; j < b->runs->len; j++) {
            PrimRange run = g_array_index(b->runs, PrimRange, j);

            if (run.start < end || run.start + run.len > b->len) {
                fuzz_fail("a run is not in its block");
            }
            end = run.start + run.len;
        }
    }
}

/* The file that the index describes, if there are no holes in it */
static TemplateFile *unpacked(const uint8_t *data, size_t size)
{
    TemplateFile *f = template_file_alloc();
    g_autoptr(GVariant) index = NULL;
    TemplateHead head = {};

    memcpy(&head, data, MIN(size, sizeof(head)));
    if (head.index_len <= size - MIN(size, sizeof(head))) {
        index = g_variant_ref_sink(g_variant_new_from_data(
            G_VARIANT_TYPE(TEMPLATE_FILE_INDEX_TYPE),
            data + MIN(size, sizeof(head)), head.index_len, false, NULL,
            NULL));
    }
    if (!index || !template_file_unpack(f, index, NULL) ||
        f->size > MOST_SIZE) {
        g_clear_pointer(&f, template_file_free);
    } else {
        check(f);
    }
    return f;
}

void target_run(const uint8_t *data, size_t size)
{
    TemplateFile *says = unpacked(data, size), *f;
    const char *identity = says ? says->identity : "none";
    g_autofree char *name = template_file_name(identity);
    g_autoptr(Error) err = NULL;
    int fd;

    if (dir < 0) {
        if (!mkdtemp(path)) {
            g_error("there is no directory for templates");
        }
        dir = open(path, O_RDONLY | O_DIRECTORY);
        atexit(remove_all);
    }
    fd = openat(dir, name, O_RDWR | O_CREAT | O_TRUNC, 0600);
    if (fd < 0 || pwrite(fd, data, size, 0) != size) {
        g_error("no file can be written");
    }
    if (says && (says->size <= size || !ftruncate(fd, says->size))) {
        struct timespec times[2] = { { .tv_nsec = UTIME_OMIT },
                                     { .tv_sec = says->modified } };

        futimens(fd, times);
    }
    close(fd);
    template_file_open(dir, identity, &f, &err);
    if (f) {
        check(f);
    } else if (!err) {
        fuzz_fail("a refusal has no reason");
    }
    unlinkat(dir, name, 0);
    template_file_free(f);
    template_file_free(says);
}

void target_repair(GByteArray *input)
{
    TemplateHead head = { .magic = TEMPLATE_FILE_MAGIC };
    size_t index = sizeof(head);

    if (input->len < index) {
        return;
    }
    head.index_len = input->len - index;
    template_file_checksum(input->data + index, head.index_len, head.checksum);
    memcpy(input->data, &head, sizeof(head));
}

void target_seed(GByteArray *input)
{
    TemplateFile *f = template_file_new("a snapshot", 7, PAGE);
    const PrimRange runs[] = { { 0, PAGE }, { 4 * PAGE, 2 * PAGE } };
    g_autoptr(GVariant) index = NULL;

    for (unsigned i = 0; i < 2; i++) {
        GArray *a = g_array_new(false, false, sizeof(PrimRange));

        g_array_append_vals(a, runs, i ? 1 : 2);
        template_file_add_block(f, i ? "vga" : "ram", 16 * PAGE, a);
        template_file_block(f, i)->offset = (i + 1) * TEMPLATE_FILE_ALIGN;
    }
    f->size = 3 * TEMPLATE_FILE_ALIGN;
    f->modified = 1000000000;
    index = template_file_pack(f);
    g_byte_array_set_size(input, sizeof(TemplateHead));
    g_byte_array_append(input, g_variant_get_data(index),
                        g_variant_get_size(index));
    target_repair(input);
    template_file_free(f);
}
