/*
 * Template files when the kernel refuses any call
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include <glib/gstdio.h>
#include "system/ram-reset/template/dir.h"
#include "system/ram-reset/template/file.h"
#include "faults.h"
#include "ram.h"

#define PAGE     4096
#define LEN      (64 * PAGE)
#define IDENTITY "snapshot"
#define OTHERS   "another snapshot"
#define NOTE     77

/* Folders for files; @huge: on hugetlbfs, or NULL */
static char *plain, *huge;

static uint8_t content[LEN];

/*
 * @dir: directory of templates; @host: RAM; @had_one: there was a template
 * already; @limit: largest size of all templates in bytes
 */
typedef struct State {
    char *path;
    int dir;
    uint8_t *host;
    bool had_one;
    uint64_t limit;
} State;

static GArray *runs(void)
{
    static const PrimRange some[] = {
        { 0, PAGE }, { 3 * PAGE, 2 * PAGE }, { LEN - PAGE, PAGE },
    };
    GArray *array = g_array_new(false, false, sizeof(PrimRange));

    g_array_append_vals(array, some, 3);
    return array;
}

static TemplateFile *new_file(const char *identity, int64_t note)
{
    TemplateFile *f = template_file_new(identity, note, PAGE);

    template_file_add_block(f, "ram", LEN, runs());
    return f;
}

static bool write_as(const State *s, const char *identity, int64_t note)
{
    uint8_t *const hosts[] = { content };
    TemplateFile *f = new_file(identity, note);
    g_autoptr(Error) err = NULL;
    bool ok = template_file_write(f, s->dir, hosts, &err);

    if (ok != !err) {
        faults_wrong("a failure without a reason, or the other way round");
    }
    template_file_free(f);
    return ok;
}

/* Bytes in the directory, except for @but */
static uint64_t left_over(const State *s, const char *but)
{
    GDir *d = g_dir_open(s->path, 0, NULL);
    const char *name;
    uint64_t bytes = 0;
    struct stat st;

    while ((name = g_dir_read_name(d))) {
        g_assert_cmpint(fstatat(s->dir, name, &st, 0), ==, 0);
        bytes += strcmp(name, but) ? st.st_blocks * UINT64_C(512) : 0;
    }
    g_dir_close(d);
    return bytes;
}

static void *setup_dir(const void *in)
{
    State *s = g_new0(State, 1);

    s->path = g_build_filename(in, "templates", NULL);
    g_assert_cmpint(g_mkdir(s->path, 0700), ==, 0);
    s->dir = open(s->path, O_RDONLY | O_DIRECTORY);
    s->host = mmap(NULL, LEN, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return s;
}

static void teardown_dir(void *opaque)
{
    State *s = opaque;
    GDir *d = g_dir_open(s->path, 0, NULL);
    const char *name;

    while ((name = g_dir_read_name(d))) {
        unlinkat(s->dir, name, 0);
    }
    g_dir_close(d);
    close(s->dir);
    munmap(s->host, LEN);
    rmdir(s->path);
    g_free(s->path);
    g_free(s);
}

static void *setup_replace(const void *in)
{
    State *s = setup_dir(in);

    s->had_one = write_as(s, IDENTITY, NOTE + 1);
    g_assert_true(s->had_one);
    return s;
}

static bool run_write(void *opaque)
{
    return write_as(opaque, IDENTITY, NOTE);
}

static void assert_restored(const uint8_t *host)
{
    g_autofree uint8_t *want = g_malloc0(LEN);
    g_autoptr(GArray) all = runs();

    for (unsigned i = 0; i < all->len; i++) {
        PrimRange run = g_array_index(all, PrimRange, i);

        memcpy(want + run.start, content + run.start, run.len);
    }
    if (memcmp(host, want, LEN)) {
        faults_wrong("wrong byte");
    }
}

/* Loads RAM from the template; false if there is none */
static bool restore(State *s)
{
    TemplateFile *f;
    RamCopy *t;
    RamCopyCounts counts = { 0 };

    template_file_open(s->dir, IDENTITY, &f, NULL);
    t = f ? template_file_copy(f, 0) : NULL;
    memset(s->host, 0xa5, LEN);
    if (t) {
        ram_copy_compare(t, s->host, NULL, NULL, 0, ram_copy_words(t), NULL,
                         &counts);
    }
    ram_copy_free(t);
    template_file_free(f);
    return t;
}

/*
 * The template is complete, or the directory is unchanged.  An empty file that
 * nobody could lock may remain.
 */
static void check_write(void *opaque, bool ok)
{
    State *s = opaque;
    g_autofree char *name = template_file_name(IDENTITY);

    if (left_over(s, name)) {
        faults_wrong("something is left behind in the directory");
    }
    if (restore(s)) {
        assert_restored(s->host);
    } else if (ok || s->had_one) {
        faults_wrong("there is no template");
    }
}

static void *setup_open(const void *in)
{
    State *s = setup_dir(in);

    g_assert_true(write_as(s, IDENTITY, NOTE));
    return s;
}

static bool run_open(void *opaque)
{
    return restore(opaque);
}

static void check_open(void *opaque, bool ok)
{
    State *s = opaque;

    if (ok) {
        assert_restored(s->host);
    } else if (s->host[0] != 0xa5) {
        faults_wrong("no template, and RAM is another");
    }
}

/* The limit has no room for two templates */
static void *setup_room(const void *in)
{
    State *s = setup_dir(in);

    g_assert_true(write_as(s, OTHERS, NOTE));
    s->limit = template_dir_size(s->dir);
    return s;
}

static bool run_room(void *opaque)
{
    State *s = opaque;

    return template_dir_make_room(s->dir, s->limit, 4 * PAGE, NULL, INT64_MAX,
                                  NULL) &&
           write_as(s, IDENTITY, NOTE);
}

static void check_room(void *opaque, bool ok)
{
    State *s = opaque;

    if (template_dir_size(s->dir) > s->limit) {
        faults_wrong("templates have more than they may");
    }
    if (ok && !restore(s)) {
        faults_wrong("there is no template");
    }
}

static const FaultTest write_new = {
    setup_dir, run_write, check_write, teardown_dir
};
static const FaultTest write_over = {
    setup_replace, run_write, check_write, teardown_dir
};
static const FaultTest open_it = {
    setup_open, run_open, check_open, teardown_dir
};
static const FaultTest make_room = {
    setup_room, run_room, check_room, teardown_dir
};

static void sweep_write(void)
{
    faults_sweep("template-write", &write_new, plain);
}

static void sweep_replace(void)
{
    faults_sweep("template-replace", &write_over, plain);
}

static void sweep_open(void)
{
    faults_sweep("template-open", &open_it, plain);
}

static void sweep_room(void)
{
    faults_sweep("template-room", &make_room, plain);
}

static void sweep_huge(void)
{
    if (may_use_hugetlbfs(huge, 8)) {
        faults_sweep("template-write-huge", &write_new, huge);
    }
}

static const FaultKind seen[] = {
    FAULT_CLOSE, FAULT_FDOPENDIR, FAULT_FLOCK, FAULT_FSTAT, FAULT_FSTATAT,
    FAULT_FSTATFS, FAULT_FSYNC, FAULT_FTRUNCATE, FAULT_FUTIMENS, FAULT_MADVISE,
    FAULT_MMAP, FAULT_MUNMAP, FAULT_OPENAT, FAULT_PREAD, FAULT_PWRITE,
    FAULT_READDIR, FAULT_RENAMEAT, FAULT_TRY_MALLOC, FAULT_UNLINKAT,
    FAULT_KINDS,
};

/* The directory is filled in */
static FaultPlanted planted[] = {
    { "not-written", &write_new, NULL, FAULT_PWRITE,
      "*there is no template*" },
    { "not-removed", &make_room, NULL, FAULT_UNLINKAT,
      "*have more than they may*" },
    { "not-closed", &open_it, NULL, FAULT_CLOSE,
      "*1 descriptors leaked*" },
    { "not-unmapped", &open_it, NULL, FAULT_MUNMAP,
      "*bytes of mappings leaked*" },
};

int main(int argc, char **argv)
{
    int ret;

    g_test_init(&argc, &argv, NULL);
    /* A folder in which fsync() takes no time, if the host has one */
    plain = faults_make_dir("/dev/shm/ram-reset-XXXXXX") ?:
            faults_make_dir("/tmp/ram-reset-XXXXXX");
    huge = g_test_subprocess() ? NULL : mount_hugetlbfs(plain);
    for (unsigned at = 0; at < LEN; at++) {
        content[at] = 1 + at / PAGE;
    }
    g_test_add_func("/faults/template-write", sweep_write);
    g_test_add_func("/faults/template-replace", sweep_replace);
    g_test_add_func("/faults/template-open", sweep_open);
    g_test_add_func("/faults/template-room", sweep_room);
    g_test_add_func("/faults/template-write-huge", sweep_huge);
    for (unsigned i = 0; i < G_N_ELEMENTS(planted); i++) {
        planted[i].param = plain;
        faults_add_planted(&planted[i]);
    }
    faults_add_seen(seen);
    ret = g_test_run();
    if (huge) {
        unmount_hugetlbfs(huge);
    }
    g_free(huge);
    faults_remove_dir(plain);
    return ret;
}
