/*
 * A directory of templates, and files to be written there
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "files.h"
#include "templates.h"

char *path;
int dir;
uint8_t *host;

GArray *runs_of(const PrimRange *runs, unsigned nr)
{
    GArray *array = g_array_new(false, false, sizeof(PrimRange));

    g_array_append_vals(array, runs, nr);
    return array;
}

static TemplateFile *new_file(const char *identity)
{
    static const PrimRange runs[] = {
        { 0, PAGE }, { 3 * PAGE, 2 * PAGE }, { LEN - PAGE, PAGE },
    };
    TemplateFile *f = template_file_new(identity, 77, PAGE);

    template_file_add_block(f, "ram", LEN, runs_of(runs, 3));
    template_file_add_block(f, "empty", 8 * PAGE, runs_of(NULL, 0));
    template_file_add_block(f, "rom", 8 * PAGE, runs_of(runs, 1));
    return f;
}

bool write_as(int at, const char *identity, Error **errp)
{
    uint8_t *const hosts[] = { host, host, host };
    TemplateFile *f = new_file(identity);
    bool ok = template_file_write(f, at, hosts, errp);

    template_file_free(f);
    return ok;
}

void make(int at, const char *identity)
{
    Error *err = NULL;

    if (!write_as(at, identity, &err)) {
        g_error("not written: %s", error_get_pretty(err));
    }
    g_assert_null(err);
}

TemplateFile *open_made(int at, const char *identity)
{
    Error *err = NULL;
    TemplateFile *f;

    if (!template_file_open(at, identity, &f, &err)) {
        g_error("not opened: %s", error_get_pretty(err));
    }
    g_assert_nonnull(f);
    return f;
}

void assert_refused(const char *identity, const char *part)
{
    Error *err = NULL;
    TemplateFile *f;

    g_assert_false(template_file_open(dir, identity, &f, &err));
    g_assert_null(f);
    assert_error(&err, part);
}

void assert_absent(const char *identity)
{
    TemplateFile *f;

    g_assert_true(template_file_open(dir, identity, &f, NULL));
    g_assert_null(f);
}

TemplateBlock *block(const TemplateFile *f, unsigned i)
{
    return &g_array_index(f->blocks, TemplateBlock, i);
}

void assert_content(const TemplateFile *f, unsigned i)
{
    TemplateBlock *b = block(f, i);
    /* Whole hugepages, if the host has any */
    uint64_t room = template_file_room(f, i);
    uint8_t *map = mmap(NULL, room, PROT_READ, MAP_SHARED | MAP_NORESERVE,
                        f->fd, b->offset);
    g_autofree uint8_t *want = g_malloc0(b->len);

    g_assert_true(map != MAP_FAILED);
    for (unsigned j = 0; j < b->runs->len; j++) {
        PrimRange run = g_array_index(b->runs, PrimRange, j);

        memcpy(want + run.start, host + run.start, run.len);
    }
    g_assert_cmpint(memcmp(map, want, b->len), ==, 0);
    g_assert_cmpint(munmap(map, room), ==, 0);
}

void assert_whole(int at, const char *identity)
{
    TemplateFile *f = open_made(at, identity);

    g_assert_cmpstr(f->identity, ==, identity);
    g_assert_cmpint(f->note, ==, 77);
    g_assert_cmpuint(f->page_size, ==, PAGE);
    g_assert_cmpuint(f->blocks->len, ==, 3);
    g_assert_cmpstr(block(f, 0)->name, ==, "ram");
    g_assert_cmpuint(block(f, 0)->len, ==, LEN);
    g_assert_cmpuint(block(f, 0)->runs->len, ==, 3);
    g_assert_cmpuint(template_file_content(f), ==, 5 * PAGE);
    for (unsigned i = 0; i < f->blocks->len; i++) {
        g_assert_cmpuint(block(f, i)->offset % TEMPLATE_FILE_ALIGN, ==, 0);
        assert_content(f, i);
    }
    template_file_free(f);
}

char *path_of(const char *identity)
{
    g_autofree char *name = template_file_name(identity);

    return g_build_filename(path, name, NULL);
}

void remove_file(void)
{
    g_autofree char *file = path_of(IDENTITY);

    unlink(file);
}

int templates_main(int argc, char **argv, void (*add)(void))
{
    int ret;

    g_test_init(&argc, &argv, NULL);
    path = g_dir_make_tmp("ram-reset-XXXXXX", NULL);
    dir = open(path, O_RDONLY | O_DIRECTORY);
    host = g_malloc(LEN);
    for (uint64_t at = 0; at < LEN; at++) {
        host[at] = 1 + at / PAGE % 255;
    }
    add();
    ret = g_test_run();
    remove_file();
    close(dir);
    rmdir(path);
    g_free(path);
    g_free(host);
    return ret;
}
