/*
 * Templates: a snapshot's RAM in a file, for later loads
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "system/ram-reset/prim/ranges.h"
#include "system/ram-reset/template/file-internal.h"

/* The smallest gap, in pages, that is worth a mapping of its own */
#define FIRST_GAP   16

static void template_block_clear(void *opaque)
{
    TemplateBlock *b = opaque;

    g_free(b->name);
    g_array_unref(b->runs);
}

TemplateFile *template_file_alloc(void)
{
    TemplateFile *f = g_new0(TemplateFile, 1);

    f->fd = -1;
    f->blocks = g_array_new(false, false, sizeof(TemplateBlock));
    g_array_set_clear_func(f->blocks, template_block_clear);
    return f;
}

TemplateFile *template_file_new(const char *identity, int64_t note,
                                uint64_t page_size)
{
    TemplateFile *f = template_file_alloc();

    f->identity = g_strdup(identity);
    f->note = note;
    f->page_size = page_size;
    return f;
}

void template_file_free(TemplateFile *f)
{
    if (!f) {
        return;
    }
    if (f->fd >= 0) {
        close(f->fd);
    }
    g_array_unref(f->blocks);
    g_free(f->identity);
    g_free(f);
}

void template_file_add_block(TemplateFile *f, const char *name, uint64_t len,
                             GArray *runs)
{
    TemplateBlock b = {
        .name = g_strdup(name), .len = len,
        .runs = prim_ranges_join(runs, TEMPLATE_FILE_RUNS,
                                 FIRST_GAP * f->page_size, 2),
    };

    g_array_append_val(f->blocks, b);
}

uint64_t template_file_content(const TemplateFile *f)
{
    uint64_t bytes = 0;

    for (unsigned i = 0; i < f->blocks->len; i++) {
        bytes += prim_ranges_size(template_file_block(f, i)->runs);
    }
    return bytes;
}

int template_file_find_block(const TemplateFile *f, const char *name)
{
    for (unsigned i = 0; i < f->blocks->len; i++) {
        if (!strcmp(template_file_block(f, i)->name, name)) {
            return i;
        }
    }
    return -1;
}

uint64_t template_file_room(const TemplateFile *f, unsigned nr)
{
    bool last = nr + 1 == f->blocks->len;

    return (last ? f->size : template_file_block(f, nr + 1)->offset) -
           template_file_block(f, nr)->offset;
}

RamCopy *template_file_copy(const TemplateFile *f, unsigned nr)
{
    const TemplateBlock *b = template_file_block(f, nr);

    return ram_copy_of_file(f->fd, b->offset, template_file_room(f, nr),
                            b->len, f->page_size, b->runs);
}

/* The index */

GVariant *template_file_pack(const TemplateFile *f)
{
    GVariantBuilder blocks;

    g_variant_builder_init(&blocks, G_VARIANT_TYPE("a(stta(tt))"));
    for (unsigned i = 0; i < f->blocks->len; i++) {
        TemplateBlock *b = template_file_block(f, i);
        GVariant *runs = g_variant_new_fixed_array(G_VARIANT_TYPE("(tt)"),
                                                   b->runs->data, b->runs->len,
                                                   sizeof(PrimRange));

        g_variant_builder_add(&blocks, "(stt@a(tt))", b->name, b->len,
                              b->offset, runs);
    }
    return g_variant_ref_sink(g_variant_new(TEMPLATE_FILE_INDEX_TYPE,
                                            f->identity, f->note, f->page_size,
                                            f->size, f->modified, &blocks));
}

void template_file_checksum(const void *data, size_t len, uint8_t *sum_out)
{
    g_autoptr(GChecksum) sha = g_checksum_new(G_CHECKSUM_SHA256);
    gsize size = sizeof(((TemplateHead *)0)->checksum);

    g_checksum_update(sha, data, len);
    g_checksum_get_digest(sha, sum_out, &size);
}

static bool index_check_block(const TemplateFile *f, unsigned nr, Error **errp)
{
    const TemplateBlock *b = template_file_block(f, nr);
    uint64_t end = 0;

    if (b->len % f->page_size || b->offset % TEMPLATE_FILE_ALIGN ||
        b->offset > f->size ||
        (nr && b->offset < template_file_block(f, nr - 1)->offset) ||
        b->len > template_file_room(f, nr)) {
        error_setg(errp, "its blocks are invalid");
        return false;
    }
    for (unsigned i = 0; i < b->runs->len; i++) {
        PrimRange run = g_array_index(b->runs, PrimRange, i);

        if (run.start % f->page_size || run.len % f->page_size || !run.len ||
            run.start > b->len || run.len > b->len - run.start ||
            (i && run.start < end)) {
            error_setg(errp, "its runs are invalid");
            return false;
        }
        end = run.start + run.len;
    }
    return true;
}

bool template_file_unpack(TemplateFile *f, GVariant *index, Error **errp)
{
    g_autoptr(GVariantIter) blocks = NULL;
    TemplateBlock b;
    GVariant *runs;

    if (!g_variant_is_normal_form(index)) {
        error_setg(errp, "its index is malformed");
        return false;
    }
    g_variant_get(index, TEMPLATE_FILE_INDEX_TYPE, &f->identity, &f->note,
                  &f->page_size, &f->size, &f->modified, &blocks);
    if (!f->page_size || f->page_size & (f->page_size - 1)) {
        error_setg(errp, "its page size is invalid");
        return false;
    }
    while (g_variant_iter_next(blocks, "(stt@a(tt))", &b.name, &b.len,
                               &b.offset, &runs)) {
        gsize nr;
        const void *data = g_variant_get_fixed_array(runs, &nr,
                                                     sizeof(PrimRange));

        b.runs = g_array_sized_new(false, false, sizeof(PrimRange), nr);
        if (nr) {
            g_array_append_vals(b.runs, data, nr);
        }
        g_variant_unref(runs);
        g_array_append_val(f->blocks, b);
    }
    for (unsigned i = 0; i < f->blocks->len; i++) {
        if (!index_check_block(f, i, errp)) {
            return false;
        }
    }
    return true;
}
