/*
 * Unit tests for system/ram-reset/templatefile.c and templatedir.c
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <glib/gstdio.h>
#include <sched.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "../../system/ram-reset/templatefile.h"

#define PAGE     4096
#define MIB      (UINT64_C(1) << 20)
#define LEN      (4 * MIB)
#define IDENTITY "snapshot 1"
#define FUTURE   INT64_MAX

static char *path;
static int dir;
static uint8_t *host;               /* LEN bytes: each page has its number */

static GArray *runs_of(const PrimRange *runs, unsigned nr)
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

static void assert_reason(char *reason, const char *part)
{
    g_assert_nonnull(reason);
    if (!strstr(reason, part)) {
        g_error("\"%s\" does not say \"%s\"", reason, part);
    }
    g_free(reason);
}

static bool write_as(int at, const char *identity, char **reason)
{
    uint8_t *const hosts[] = { host, host, host };
    TemplateFile *f = new_file(identity);
    bool ok = template_file_write(f, at, hosts, reason);

    template_file_free(f);
    return ok;
}

static void make(int at, const char *identity)
{
    char *reason;

    if (!write_as(at, identity, &reason)) {
        g_error("not written: %s", reason);
    }
    g_assert_null(reason);
}

static TemplateFile *opened(int at, const char *identity)
{
    char *reason;
    TemplateFile *f = template_file_open(at, identity, &reason);

    if (!f) {
        g_error("not opened: %s", reason ?: "not there");
    }
    return f;
}

static void assert_refused(const char *identity, const char *part)
{
    char *reason;

    g_assert_null(template_file_open(dir, identity, &reason));
    assert_reason(reason, part);
}

static void assert_absent(const char *identity)
{
    char *reason;

    g_assert_null(template_file_open(dir, identity, &reason));
    g_assert_null(reason);
}

static TemplateBlock *block(const TemplateFile *f, unsigned i)
{
    return &g_array_index(f->blocks, TemplateBlock, i);
}

/* All that is in runs is there, all else reads zero */
static void assert_content(const TemplateFile *f, unsigned i)
{
    TemplateBlock *b = block(f, i);
    /* Whole hugepages, where there are such */
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

static void assert_whole(int at, const char *identity)
{
    TemplateFile *f = opened(at, identity);

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

static char *path_of(const char *identity)
{
    g_autofree char *name = template_file_name(identity);

    return g_build_filename(path, name, NULL);
}

static void remove_file(void)
{
    g_autofree char *file = path_of(IDENTITY);

    unlink(file);
}

static void test_round_trip(void)
{
    g_autofree char *file = path_of(IDENTITY);
    struct stat st;

    assert_absent(IDENTITY);
    make(dir, IDENTITY);
    assert_whole(dir, IDENTITY);
    g_assert_cmpint(stat(file, &st), ==, 0);
    g_assert_cmpint(st.st_mode & 07777, ==, 0600);
    g_assert_cmpuint(st.st_blocks * 512, <, 64 * 1024);
    g_assert_cmpuint(template_dir_size(dir), ==, st.st_blocks * 512);
    /* Once more, in its place */
    make(dir, IDENTITY);
    assert_whole(dir, IDENTITY);
    assert_absent("snapshot 2");
}

/* @path on a file system that may not be writable by a mapping */
static void test_hugetlbfs(void)
{
    g_autofree char *mounted = g_build_filename(path, "huge", NULL);
    char *reason;
    int at;

    if (unshare(CLONE_NEWNS) < 0 ||
        mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0) {
        g_test_skip("no right to mount hugetlbfs");
        return;
    }
    g_mkdir(mounted, 0700);
    if (mount("none", mounted, "hugetlbfs", 0, "pagesize=2M,size=16M") < 0) {
        g_test_skip("no hugetlbfs of 2 MiB pages");
        rmdir(mounted);
        return;
    }
    at = open(mounted, O_RDONLY | O_DIRECTORY);
    if (write_as(at, IDENTITY, &reason)) {
        assert_whole(at, IDENTITY);
    } else {
        assert_reason(reason, g_strerror(ENOSPC));
        g_assert_cmpuint(template_dir_size(at), ==, 0);
        g_test_skip("no 2 MiB hugepages: set vm.nr_hugepages to 16 or more");
    }
    close(at);
    g_assert_cmpint(umount(mounted), ==, 0);
    rmdir(mounted);
}

/* Bytes of a good file are changed, and its time is put back */
static void damage(uint64_t offset, uint8_t bits)
{
    g_autofree char *file = path_of(IDENTITY);
    int fd = open(file, O_RDWR);
    struct timespec times[2];
    struct stat st;
    uint8_t byte;

    g_assert_cmpint(fstat(fd, &st), ==, 0);
    g_assert_cmpint(pread(fd, &byte, 1, offset), ==, 1);
    byte ^= bits;
    g_assert_cmpint(pwrite(fd, &byte, 1, offset), ==, 1);
    times[0] = st.st_atim;
    times[1] = st.st_mtim;
    g_assert_cmpint(futimens(fd, times), ==, 0);
    close(fd);
}

static void test_damage(void)
{
    uint64_t index_len;
    g_autofree char *file = path_of(IDENTITY);
    int fd;

    make(dir, IDENTITY);
    fd = open(file, O_RDONLY);
    g_assert_cmpint(pread(fd, &index_len, 8, 8), ==, 8);
    close(fd);
    for (uint64_t at = 0; at < 48 + index_len; at++) {
        char *reason = NULL;

        damage(at, 1 << at % 8);
        g_assert_null(template_file_open(dir, IDENTITY, &reason));
        g_assert_nonnull(reason);
        g_free(reason);
        damage(at, 1 << at % 8);
    }
    assert_whole(dir, IDENTITY);
}

static void test_cut(void)
{
    static const uint64_t sizes[] = { 0, 7, 47, 48, 100, 4096, 3 * MIB };
    g_autofree char *file = path_of(IDENTITY);

    for (unsigned i = 0; i < G_N_ELEMENTS(sizes); i++) {
        char *reason;

        make(dir, IDENTITY);
        g_assert_cmpint(truncate(file, sizes[i]), ==, 0);
        g_assert_null(template_file_open(dir, IDENTITY, &reason));
        g_assert_nonnull(reason);
        g_free(reason);
    }
}

static void test_written_to(void)
{
    g_autofree char *file = path_of(IDENTITY);
    int fd;

    make(dir, IDENTITY);
    fd = open(file, O_RDWR);
    g_assert_cmpint(pwrite(fd, "x", 1, TEMPLATE_FILE_ALIGN), ==, 1);
    close(fd);
    assert_refused(IDENTITY, "written to");
}

static void test_of_others(void)
{
    g_autofree char *file = path_of(IDENTITY), *other = path_of("snapshot 2");

    make(dir, IDENTITY);
    g_assert_cmpint(rename(file, other), ==, 0);
    assert_refused("snapshot 2", "another snapshot");
    make(dir, IDENTITY);
    g_assert_cmpint(chmod(file, 0644), ==, 0);
    assert_refused(IDENTITY, "0644");
    if (geteuid() == 0) {
        g_assert_cmpint(chmod(file, 0600), ==, 0);
        g_assert_cmpint(chown(file, 12, 12), ==, 0);
        assert_refused(IDENTITY, "belongs to user 12");
    }
    unlink(file);
    g_assert_cmpint(symlink(other, file), ==, 0);
    assert_refused(IDENTITY, "symbolic link");
    unlink(file);
    g_assert_cmpint(mkfifo(file, 0600), ==, 0);
    assert_refused(IDENTITY, "not a regular file");
    unlink(file);
    unlink(other);
}

static bool make_room(int at, uint64_t limit, uint64_t needed, int64_t since,
                      char **reason)
{
    return template_dir_make_room(at, limit, needed, NULL, since, reason);
}

/* Somebody is at it, or was and has died */
static void test_unfinished(void)
{
    g_autofree char *file = path_of(IDENTITY);
    g_autofree char *unfinished = g_strconcat(file, ".new", NULL);
    int fd = open(unfinished, O_RDWR | O_CREAT, 0600);
    char *reason;

    g_assert_cmpint(write(fd, file, 100), ==, 100);
    g_assert_cmpint(flock(fd, LOCK_EX), ==, 0);
    g_assert_false(write_as(dir, IDENTITY, &reason));
    assert_reason(reason, "another process");
    g_assert_true(make_room(dir, MIB, 0, 0, &reason));
    g_assert_true(g_file_test(unfinished, G_FILE_TEST_EXISTS));
    close(fd);
    make(dir, IDENTITY);
    assert_whole(dir, IDENTITY);
    g_assert_false(g_file_test(unfinished, G_FILE_TEST_EXISTS));
    close(open(unfinished, O_RDWR | O_CREAT, 0600));
    g_assert_true(make_room(dir, MIB, 0, 0, &reason));
    g_assert_false(g_file_test(unfinished, G_FILE_TEST_EXISTS));
}

static void write_and_read(unsigned times)
{
    for (unsigned i = 0; i < times; i++) {
        char *reason;

        if (!write_as(dir, IDENTITY, &reason)) {
            if (!strstr(reason, "another process")) {
                g_error("%s", reason);
            }
            g_free(reason);
        }
        assert_whole(dir, IDENTITY);
    }
}

static void test_at_once(void)
{
    int status;

    make(dir, IDENTITY);
    for (unsigned i = 0; i < 4; i++) {
        if (!fork()) {
            write_and_read(200);
            _exit(0);
        }
    }
    for (unsigned i = 0; i < 4; i++) {
        g_assert_cmpint(wait(&status), >, 0);
        g_assert_cmpint(status, ==, 0);
    }
    assert_whole(dir, IDENTITY);
}

static void used_at(const char *identity, int64_t seconds)
{
    g_autofree char *file = path_of(identity);
    struct timespec times[2] = { { .tv_sec = seconds },
                                 { .tv_nsec = UTIME_OMIT } };

    g_assert_cmpint(utimensat(AT_FDCWD, file, times, 0), ==, 0);
}

static void test_room(void)
{
    TemplateFile *in_use;
    char *reason;
    uint64_t one;
    struct stat st;
    g_autofree char *file = path_of("c");

    remove_file();
    for (const char *id = "a\0b\0c\0d\0"; *id; id += 2) {
        make(dir, id);
    }
    g_assert_cmpint(stat(file, &st), ==, 0);
    one = st.st_blocks * 512;
    g_assert_cmpuint(template_dir_size(dir), ==, 4 * one);
    in_use = opened(dir, "a");
    used_at("a", 10);
    used_at("b", 30);
    used_at("c", 20);
    used_at("d", 40);
    g_assert_true(make_room(dir, 5 * one, one, FUTURE, &reason));
    g_assert_cmpuint(template_dir_size(dir), ==, 4 * one);
    /* The one used longest ago that nobody uses */
    g_assert_true(make_room(dir, 4 * one, one, FUTURE, &reason));
    assert_absent("c");
    g_assert_cmpuint(template_dir_size(dir), ==, 3 * one);
    /* b and d have to go, but d has been used lately */
    g_assert_false(make_room(dir, 2 * one, one, 35, &reason));
    assert_reason(reason, "used lately");
    assert_absent("b");
    g_assert_false(make_room(dir, one, one, FUTURE, &reason));
    assert_reason(reason, "used lately");
    assert_absent("d");
    g_assert_false(make_room(dir, one - 1, one, FUTURE, &reason));
    assert_reason(reason, "may have");
    template_file_free(in_use);
    assert_whole(dir, "a");
    g_assert_true(make_room(dir, one, one, FUTURE, &reason));
    g_assert_cmpuint(template_dir_size(dir), ==, 0);
}

/* Others' stay, whenever they have been used */
static void test_room_among_own(void)
{
    g_autoptr(GHashTable) own = g_hash_table_new_full(g_str_hash, g_str_equal,
                                                      g_free, NULL);
    uint64_t one;
    char *reason;

    remove_file();
    make(dir, "a");
    one = template_dir_size(dir);
    for (const char *id = "b\0c\0d\0"; *id; id += 2) {
        make(dir, id);
    }
    used_at("a", 10);
    used_at("b", 20);
    used_at("c", 40);
    used_at("d", 30);
    g_assert_false(template_dir_make_room(dir, 4 * one, one, own, FUTURE,
                                          &reason));
    assert_reason(reason, "not this QEMU's");
    g_hash_table_add(own, template_file_name("c"));
    g_hash_table_add(own, template_file_name("d"));
    g_assert_true(template_dir_make_room(dir, 4 * one, one, own, FUTURE,
                                         &reason));
    assert_absent("d");
    g_assert_false(template_dir_make_room(dir, 2 * one, one, own, FUTURE,
                                          &reason));
    assert_reason(reason, "not this QEMU's");
    assert_absent("c");
    assert_whole(dir, "a");
    assert_whole(dir, "b");
    template_file_remove(dir, "a");
    template_file_remove(dir, "b");
}

/* Of a snapshot that is no more: it goes if nobody else needs it */
static void test_retired(void)
{
    TemplateFile *ours, *theirs;

    g_assert_false(template_file_retire(dir, IDENTITY, -1));
    make(dir, IDENTITY);
    make(dir, "snapshot 2");
    g_assert_true(template_file_retire(dir, IDENTITY, -1));
    assert_absent(IDENTITY);
    make(dir, IDENTITY);
    theirs = opened(dir, IDENTITY);
    g_assert_false(template_file_retire(dir, IDENTITY, -1));
    ours = opened(dir, IDENTITY);
    g_assert_false(template_file_retire(dir, IDENTITY, ours->fd));
    template_file_free(theirs);
    /* We still have it locked, against somebody who would do the same */
    g_assert_false(template_file_retire(dir, IDENTITY, -1));
    assert_whole(dir, IDENTITY);
    g_assert_true(template_file_retire(dir, IDENTITY, ours->fd));
    assert_absent(IDENTITY);
    assert_content(ours, 0);
    /* By now the name is another file's, or never was this one's */
    make(dir, IDENTITY);
    g_assert_true(template_file_retire(dir, IDENTITY, ours->fd));
    assert_whole(dir, "snapshot 2");
    g_assert_true(template_file_retire(dir, "snapshot 2", ours->fd));
    template_file_free(ours);
    g_assert_cmpuint(template_dir_size(dir), ==, 0);
}

/* It would be ended by SIGXFSZ, and is not */
static void test_file_size_limit(void)
{
    struct rlimit before, most;
    char *reason;

    remove_file();
    g_assert_cmpint(getrlimit(RLIMIT_FSIZE, &before), ==, 0);
    for (uint64_t limit = 0; limit <= 4 * MIB; limit = limit * 2 ?: 1) {
        most = before;
        most.rlim_cur = limit;
        g_assert_cmpint(setrlimit(RLIMIT_FSIZE, &most), ==, 0);
        g_assert_false(write_as(dir, IDENTITY, &reason));
        assert_reason(reason, "RLIMIT_FSIZE");
        g_assert_cmpint(setrlimit(RLIMIT_FSIZE, &before), ==, 0);
        g_assert_cmpuint(template_dir_size(dir), ==, 0);
        assert_absent(IDENTITY);
    }
    make(dir, IDENTITY);
    assert_whole(dir, IDENTITY);
    remove_file();
}

static void test_full(void)
{
    g_autofree char *mounted = g_build_filename(path, "small", NULL);
    g_autofree uint8_t *large = g_malloc(LEN);
    uint8_t *const hosts[] = { large };
    PrimRange all = { 0, LEN };
    TemplateFile *f = template_file_new(IDENTITY, 1, PAGE);
    char *reason;
    int at;

    template_file_add_block(f, "ram", LEN, runs_of(&all, 1));
    if (unshare(CLONE_NEWNS) < 0 ||
        mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0) {
        g_test_skip("no right to mount tmpfs");
        template_file_free(f);
        return;
    }
    memset(large, 1, LEN);
    g_mkdir(mounted, 0700);
    g_assert_cmpint(mount("none", mounted, "tmpfs", 0, "size=2M"), ==, 0);
    at = open(mounted, O_RDONLY | O_DIRECTORY);
    g_assert_false(template_file_write(f, at, hosts, &reason));
    assert_reason(reason, g_strerror(ENOSPC));
    g_assert_cmpuint(template_dir_size(at), ==, 0);
    g_assert_false(make_room(at, 0, LEN, FUTURE, &reason));
    g_free(reason);
    g_assert_false(make_room(at, 8 * LEN, LEN, FUTURE, &reason));
    assert_reason(reason, "MiB left");
    close(at);
    template_file_free(f);
    umount(mounted);
    rmdir(mounted);
}

static unsigned joined(unsigned nr, uint64_t distance, uint64_t *bytes)
{
    GArray *runs = g_array_new(false, false, sizeof(PrimRange));
    TemplateFile *f = template_file_new(IDENTITY, 0, PAGE);
    unsigned left;

    for (unsigned i = 0; i < nr; i++) {
        PrimRange run = { i * distance * PAGE, PAGE };

        g_array_append_val(runs, run);
    }
    template_file_add_block(f, "ram", nr * distance * PAGE, runs);
    left = block(f, 0)->runs->len;
    *bytes = template_file_content(f);
    template_file_free(f);
    return left;
}

static void test_joined(void)
{
    const unsigned many = TEMPLATE_FILE_RUNS;
    uint64_t bytes;

    /* Few are left as they are, so are many that would get much larger */
    g_assert_cmpuint(joined(many, 2, &bytes), ==, many);
    g_assert_cmpuint(bytes, ==, many * PAGE);
    g_assert_cmpuint(joined(many + 1, 3, &bytes), ==, many + 1);
    g_assert_cmpuint(bytes, ==, (many + 1) * PAGE);
    g_assert_cmpuint(joined(many + 1, 2, &bytes), ==, 1);
    g_assert_cmpuint(bytes, ==, (2 * many + 1) * PAGE);
}

int main(int argc, char **argv)
{
    int ret;

    g_test_init(&argc, &argv, NULL);
    path = g_dir_make_tmp("ram-reset-XXXXXX", NULL);
    dir = open(path, O_RDONLY | O_DIRECTORY);
    host = g_malloc(LEN);
    for (uint64_t at = 0; at < LEN; at++) {
        host[at] = 1 + at / PAGE % 255;
    }
    g_test_add_func("/template-file/round-trip", test_round_trip);
    g_test_add_func("/template-file/damage", test_damage);
    g_test_add_func("/template-file/cut", test_cut);
    g_test_add_func("/template-file/written-to", test_written_to);
    g_test_add_func("/template-file/of-others", test_of_others);
    g_test_add_func("/template-file/joined", test_joined);
    g_test_add_func("/template-file/unfinished", test_unfinished);
    g_test_add_func("/template-file/at-once", test_at_once);
    g_test_add_func("/template-dir/room", test_room);
    g_test_add_func("/template-dir/room-among-own", test_room_among_own);
    g_test_add_func("/template-dir/retired", test_retired);
    g_test_add_func("/template-file/file-size-limit", test_file_size_limit);
    g_test_add_func("/template-dir/full", test_full);
    g_test_add_func("/template-dir/hugetlbfs", test_hugetlbfs);
    ret = g_test_run();
    remove_file();
    rmdir(path);
    return ret;
}
