/*
 * What becomes of template and hugepage files when the kernel refuses any call
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <glib/gstdio.h>
#include <sched.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>
#include "../../system/ram-reset/hugeram.h"
#include "../../system/ram-reset/hugerecord.h"
#include "../../system/ram-reset/template.h"
#include "faults.h"
#include "ram.h"

#define PAGE     4096
#define MIB      (UINT64_C(1) << 20)
#define LEN      (64 * PAGE)
#define IDENTITY "snapshot"
#define OTHERS   "another snapshot"
#define NOTE     77

/* Where files go; @huge: on hugetlbfs, or NULL */
static char *plain, *huge;

static uint8_t content[LEN];

/*
 * @dir: of templates, empty at first; @f: open now; @host: RAM;
 * @fd, @second, @notice: of a hugepage file
 */
typedef struct State {
    char *path;
    int dir;
    TemplateFile *f;
    uint8_t *host;
    bool had_one;
    uint64_t limit;
    char *file;
    int fd, second, notice;
    HugeRecord old, new, found;
} State;

static GArray *runs(void)
{
    static const TemplateRun some[] = {
        { 0, PAGE }, { 3 * PAGE, 2 * PAGE }, { LEN - PAGE, PAGE },
    };
    GArray *array = g_array_new(false, false, sizeof(TemplateRun));

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
    g_autofree char *reason = NULL;
    bool ok = template_file_write(f, s->dir, hosts, &reason);

    if (ok != !reason) {
        faults_wrong("a failure without a reason, or the other way round");
    }
    template_file_free(f);
    return ok;
}

/* Bytes in the directory, other than in @but */
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
    s->fd = s->second = s->notice = -1;
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
        TemplateRun run = g_array_index(all, TemplateRun, i);

        memcpy(want + run.start, content + run.start, run.len);
    }
    if (memcmp(host, want, LEN)) {
        faults_wrong("wrong byte");
    }
}

/* RAM as the template has it; false if there is none */
static bool restore(State *s)
{
    g_autofree char *reason = NULL;
    TemplateFile *f = template_file_open(s->dir, IDENTITY, &reason);
    RamTemplate *t = f ? template_of_file(f, 0) : NULL;
    TemplateCounts counts = { 0 };

    memset(s->host, 0xa5, LEN);
    if (t) {
        template_compare(t, s->host, NULL, 0, template_words(t), &counts);
    }
    template_free(t);
    template_file_free(f);
    return t;
}

/*
 * It is there in full, or not at all, as it was before.  An empty file may be
 * left, which nobody could lock.
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

/* No room for two */
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
    g_autofree char *reason = NULL;

    return template_dir_make_room(s->dir, s->limit, 4 * PAGE, INT64_MAX,
                                  &reason) &&
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

/* A hugepage file, as it is taken by one QEMU after the other */

static void *setup_ram(const void *in)
{
    State *s = setup_dir(in);

    s->file = g_build_filename(s->path, "ram", NULL);
    return s;
}

static void close_one(int *fd)
{
    if (*fd >= 0) {
        close(*fd);
        *fd = -1;
    }
}

static bool is_fine(char *reason)
{
    g_free(reason);
    return !reason;
}

static bool run_create(void *opaque)
{
    State *s = opaque;

    return is_fine(hugeram_create(s->file, 2 * HUGE_SIZE, &s->fd)) &&
           is_fine(hugeram_reserve(s->fd, 2 * HUGE_SIZE, HUGE_SIZE));
}

/* Also here an empty file may be left that nobody could lock */
static void check_create(void *opaque, bool ok)
{
    State *s = opaque;
    struct stat st;

    if (ok) {
        g_assert_cmpint(fstat(s->fd, &st), ==, 0);
        g_assert_cmpint(st.st_size, ==, 2 * HUGE_SIZE);
        g_assert_cmpint(fcntl(s->fd, F_GETFL) & O_ACCMODE, ==, O_RDONLY);
    } else if (s->fd < 0 && stat(s->file, &st) == 0 && st.st_size) {
        faults_wrong("a file is left behind");
    }
    close_one(&s->fd);
    unlink(s->file);
}

static void *setup_left_over(const void *in)
{
    State *s = setup_ram(in);

    g_assert_true(is_fine(hugeram_create(s->file, 2 * HUGE_SIZE, &s->fd)));
    close_one(&s->fd);
    return s;
}

/* As hugefile-claim.c and hugefile.c do it; by @second QEMU has it mapped */
static bool run_take(void *opaque)
{
    State *s = opaque;
    int64_t time;
    bool ok;

    s->second = -1;
    if (!is_fine(hugeram_open(s->file, &s->fd)) || s->fd < 0) {
        return false;
    }
    s->notice = hugeram_notice(s->fd);
    s->second = open(s->file, O_RDWR | O_CLOEXEC);
    if (s->second < 0) {
        return false;
    }
    ok = is_fine(hugeram_take_over(s->fd, s->second, s->file));
    s->fd = -1;
    ok = ok && hugeram_watch(s->second, &time);
    if (s->notice >= 0) {
        ok = !hugeram_was_closed(s->notice) && ok;
        s->notice = -1;
    } else {
        ok = false;
    }
    return ok && hugeram_is_ours_alone(s->second, true);
}

/* Who has it says so, and it can be had afterwards */
static void check_take(void *opaque, bool ok)
{
    State *s = opaque;
    int fd;

    if (ok && is_fine(hugeram_open(s->file, &fd))) {
        faults_wrong("somebody else could take it");
    }
    close_one(&s->fd);
    close_one(&s->second);
    close_one(&s->notice);
}

static void teardown_ram(void *opaque)
{
    State *s = opaque;

    g_clear_pointer(&s->file, g_free);
    teardown_dir(s);
}

/* The record of such a file */

static bool all_dirty[4] = { true, true, true, true }, clean[4];

static void *setup_record(const void *in)
{
    State *s = setup_dir(in);
    g_autofree char *reason = NULL;

    s->file = g_build_filename(s->path, "state", NULL);
    s->old = (HugeRecord) { .pid = 1, .in_use = true, .page_size = HUGE_SIZE,
                            .boot_id = (char *)"boot", .pages = 4,
                            .dirty = all_dirty };
    s->new = s->old;
    s->new.in_use = false;
    s->new.dirty = clean;
    s->fd = hugerecord_open(s->file, &reason);
    g_assert_cmpint(hugerecord_write(s->fd, &s->old), ==, 0);
    close_one(&s->fd);
    return s;
}

static bool run_record(void *opaque)
{
    State *s = opaque;
    g_autofree char *reason = NULL;

    s->fd = hugerecord_open(s->file, &reason);
    return s->fd >= 0 && hugerecord_write(s->fd, &s->new) == 0;
}

static void assert_record(const HugeRecord *rec, bool in_use)
{
    if (rec->in_use != in_use || rec->pages != 4 ||
        memcmp(rec->dirty, in_use ? all_dirty : clean, 4)) {
        faults_wrong("wrong record");
    }
}

/* Half a record is none; to have none is safe */
static void check_record(void *opaque, bool ok)
{
    State *s = opaque;
    g_autofree char *reason = NULL;
    int fd;

    close_one(&s->fd);
    fd = hugerecord_open(s->file, &reason);
    if (fd < 0) {
        faults_wrong("the file cannot be used any more: %s", reason);
    }
    if (hugerecord_read(fd, &s->found, &reason)) {
        assert_record(&s->found, ok ? false : s->found.in_use);
    } else if (ok) {
        faults_wrong("the record is lost: %s", reason);
    }
    hugerecord_clear(&s->found);
    g_free(reason);
    reason = NULL;
    close(fd);
}

static bool run_read_record(void *opaque)
{
    State *s = opaque;
    g_autofree char *reason = NULL, *again = NULL;
    g_autofree char *boot_id = hugerecord_boot_id();
    bool ok;

    s->fd = hugerecord_open(s->file, &reason);
    ok = s->fd >= 0 && hugerecord_read(s->fd, &s->found, &again) && boot_id;
    close_one(&s->fd);
    return ok;
}

static void check_read_record(void *opaque, bool ok)
{
    State *s = opaque;

    if (ok) {
        assert_record(&s->found, true);
    }
    hugerecord_clear(&s->found);
}

static const struct {
    const char *name;
    bool on_hugetlbfs;
    FaultTest test;
} sweeps[] = {
    { "template-write", false,
      { setup_dir, run_write, check_write, teardown_dir } },
    { "template-replace", false,
      { setup_replace, run_write, check_write, teardown_dir } },
    { "template-open", false,
      { setup_open, run_open, check_open, teardown_dir } },
    { "template-room", false,
      { setup_room, run_room, check_room, teardown_dir } },
    { "template-write-huge", true,
      { setup_dir, run_write, check_write, teardown_dir } },
    { "hugeram-create", true,
      { setup_ram, run_create, check_create, teardown_ram } },
    { "hugeram-take", true,
      { setup_left_over, run_take, check_take, teardown_ram } },
    { "hugerecord-write", false,
      { setup_record, run_record, check_record, teardown_ram } },
    { "hugerecord-read", false,
      { setup_record, run_read_record, check_read_record, teardown_ram } },
};

static void sweep(gconstpointer data)
{
    unsigned i = GPOINTER_TO_UINT(data);

    if (sweeps[i].on_hugetlbfs && !huge) {
        g_test_skip("no right to mount a hugetlbfs of 2 MiB pages");
    } else if (sweeps[i].on_hugetlbfs && hugepages_to_spare() < 8) {
        g_test_skip("no 2 MiB hugepages: set vm.nr_hugepages to 64 or more");
    } else {
        faults_sweep(sweeps[i].name, &sweeps[i].test,
                     sweeps[i].on_hugetlbfs ? huge : plain);
    }
}

/* Bugs that are planted, to see that sweeps find such */
static const struct {
    const char *name;
    unsigned sweep;
    FaultKind call;
    const char *says;
} planted[] = {
    { "not-written", 0, FAULT_PWRITE, "*there is no template*" },
    { "not-removed", 3, FAULT_UNLINKAT, "*have more than they may*" },
    { "not-closed", 2, FAULT_CLOSE, "*1 descriptors leaked*" },
    { "not-unmapped", 2, FAULT_MUNMAP, "*bytes of mappings leaked*" },
    { "no-record", 7, FAULT_PWRITE, "*the record is lost*" },
};

static void test_planted(gconstpointer data)
{
    unsigned i = GPOINTER_TO_UINT(data);
    bool ok;

    if (g_test_subprocess()) {
        for (unsigned nth = 1; nth < 10; nth++) {
            faults_try(&sweeps[planted[i].sweep].test, plain, planted[i].call,
                       nth, 0, FAULT_LIE, &ok);
        }
        return;
    }
    g_test_trap_subprocess(NULL, 0, G_TEST_SUBPROCESS_DEFAULT);
    g_test_trap_assert_failed();
    g_test_trap_assert_stderr(planted[i].says);
}

static void test_all_seen(void)
{
    static const FaultKind all[] = {
        FAULT_CLOSE, FAULT_FDOPENDIR, FAULT_FLOCK, FAULT_FSTAT, FAULT_FSTATAT,
        FAULT_FSTATFS, FAULT_FSYNC, FAULT_FTRUNCATE, FAULT_FUTIMENS,
        FAULT_GET_CONTENTS, FAULT_MADVISE, FAULT_MMAP, FAULT_MUNMAP, FAULT_OPEN,
        FAULT_OPENAT, FAULT_PREAD, FAULT_PWRITE, FAULT_READDIR, FAULT_RENAMEAT,
        FAULT_TRY_MALLOC, FAULT_UNLINKAT, FAULT_KINDS,
    };
    static const FaultKind on_hugetlbfs[] = {
        FAULT_FALLOCATE, FAULT_FCNTL, FAULT_FSTATVFS, FAULT_INOTIFY_ADD_WATCH,
        FAULT_INOTIFY_INIT, FAULT_LSTAT, FAULT_READ, FAULT_KINDS,
    };

    faults_assert_seen(all);
    if (huge && hugepages_to_spare() >= 8) {
        faults_assert_seen(on_hugetlbfs);
    }
}

/* In a mount namespace of ours, so that it goes away with us */
static char *mount_huge(void)
{
    char *name = g_build_filename(plain, "huge", NULL);

    g_assert_cmpint(g_mkdir(name, 0700), ==, 0);
    if (unshare(CLONE_NEWNS) < 0 ||
        mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
        mount("none", name, "hugetlbfs", 0, "pagesize=2M") < 0) {
        rmdir(name);
        g_clear_pointer(&name, g_free);
    }
    return name;
}

int main(int argc, char **argv)
{
    int ret;

    g_test_init(&argc, &argv, NULL);
    /* Where fsync() takes no time */
    plain = g_mkdtemp(g_strdup("/dev/shm/ram-reset-XXXXXX")) ?:
            g_dir_make_tmp("ram-reset-XXXXXX", NULL);
    huge = mount_huge();
    for (unsigned at = 0; at < LEN; at++) {
        content[at] = 1 + at / PAGE;
    }
    for (unsigned i = 0; i < G_N_ELEMENTS(sweeps); i++) {
        g_autofree char *path = g_strdup_printf("/faults/%s", sweeps[i].name);

        g_test_add_data_func(path, GUINT_TO_POINTER(i), sweep);
    }
    for (unsigned i = 0; i < G_N_ELEMENTS(planted); i++) {
        g_autofree char *path = g_strdup_printf("/faults/planted/%s",
                                                planted[i].name);

        g_test_add_data_func(path, GUINT_TO_POINTER(i), test_planted);
    }
    /* Another suite than theirs, so that it comes after them */
    g_test_add_func("/faults-seen/all", test_all_seen);
    ret = g_test_run();
    if (huge) {
        umount(huge);
        rmdir(huge);
    }
    rmdir(plain);
    g_free(huge);
    g_free(plain);
    return ret;
}
