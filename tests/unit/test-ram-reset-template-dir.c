/*
 * Unit tests for system/ram-reset/template/dir.c
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include <glib/gstdio.h>
#include <sched.h>
#include <sys/mount.h>
#include "files.h"
#include "system/ram-reset/template/dir.h"
#include "templates.h"

static bool make_room(int at, uint64_t limit, uint64_t needed, int64_t since,
                      Error **errp)
{
    return template_dir_make_room(at, limit, needed, NULL, since, errp);
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
    Error *err = NULL;
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
    in_use = open_made(dir, "a");
    used_at("a", 10);
    used_at("b", 30);
    used_at("c", 20);
    used_at("d", 40);
    g_assert_true(make_room(dir, 5 * one, one, FUTURE, &err));
    g_assert_cmpuint(template_dir_size(dir), ==, 4 * one);
    /* The template that was used longest ago, and is not in use */
    g_assert_true(make_room(dir, 4 * one, one, FUTURE, &err));
    assert_absent("c");
    g_assert_cmpuint(template_dir_size(dir), ==, 3 * one);
    /* b and d must be removed, but d has been used lately */
    g_assert_false(make_room(dir, 2 * one, one, 35, &err));
    assert_error(&err, "used lately");
    assert_absent("b");
    g_assert_false(make_room(dir, one, one, FUTURE, &err));
    assert_error(&err, "used lately");
    assert_absent("d");
    g_assert_false(make_room(dir, one - 1, one, FUTURE, &err));
    assert_error(&err, "may have");
    template_file_free(in_use);
    assert_whole(dir, "a");
    g_assert_true(make_room(dir, one, one, FUTURE, &err));
    g_assert_cmpuint(template_dir_size(dir), ==, 0);
}

/* Templates of others stay, whenever they were used */
static void test_room_among_own(void)
{
    g_autoptr(GHashTable) own = g_hash_table_new_full(g_str_hash, g_str_equal,
                                                      g_free, NULL);
    uint64_t one;
    Error *err = NULL;

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
                                          &err));
    assert_error(&err, "not this QEMU's");
    g_hash_table_add(own, template_file_name("c"));
    g_hash_table_add(own, template_file_name("d"));
    g_assert_true(template_dir_make_room(dir, 4 * one, one, own, FUTURE,
                                         &err));
    assert_absent("d");
    g_assert_false(template_dir_make_room(dir, 2 * one, one, own, FUTURE,
                                          &err));
    assert_error(&err, "not this QEMU's");
    assert_absent("c");
    assert_whole(dir, "a");
    assert_whole(dir, "b");
    template_dir_remove(dir, "a");
    template_dir_remove(dir, "b");
}

/* The template of a deleted snapshot is removed if nobody else needs it */
static void test_retired(void)
{
    TemplateFile *ours, *theirs;

    g_assert_false(template_dir_retire(dir, IDENTITY, -1));
    make(dir, IDENTITY);
    make(dir, "snapshot 2");
    g_assert_true(template_dir_retire(dir, IDENTITY, -1));
    assert_absent(IDENTITY);
    make(dir, IDENTITY);
    theirs = open_made(dir, IDENTITY);
    g_assert_false(template_dir_retire(dir, IDENTITY, -1));
    ours = open_made(dir, IDENTITY);
    g_assert_false(template_dir_retire(dir, IDENTITY, ours->fd));
    template_file_free(theirs);
    /*
     * This process still has it locked, against another that would do the same
     */
    g_assert_false(template_dir_retire(dir, IDENTITY, -1));
    assert_whole(dir, IDENTITY);
    g_assert_true(template_dir_retire(dir, IDENTITY, ours->fd));
    assert_absent(IDENTITY);
    assert_content(ours, 0);
    /* The name belongs to another file by now, or always did */
    make(dir, IDENTITY);
    g_assert_true(template_dir_retire(dir, IDENTITY, ours->fd));
    assert_whole(dir, "snapshot 2");
    g_assert_true(template_dir_retire(dir, "snapshot 2", ours->fd));
    template_file_free(ours);
    g_assert_cmpuint(template_dir_size(dir), ==, 0);
}

static void test_full(void)
{
    g_autofree char *mounted = g_build_filename(path, "small", NULL);
    g_autofree uint8_t *large = g_malloc(LEN);
    uint8_t *const hosts[] = { large };
    PrimRange all = { 0, LEN };
    TemplateFile *f = template_file_new(IDENTITY, 1, PAGE);
    Error *err = NULL;
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
    g_assert_false(template_file_write(f, at, hosts, &err));
    assert_error(&err, g_strerror(ENOSPC));
    g_assert_cmpuint(template_dir_size(at), ==, 0);
    g_assert_false(make_room(at, 0, LEN, FUTURE, &err));
    assert_error(&err, "");
    g_assert_false(make_room(at, 8 * LEN, LEN, FUTURE, &err));
    assert_error(&err, "MiB left");
    close(at);
    template_file_free(f);
    umount(mounted);
    rmdir(mounted);
}

/* @path on a file system that may not be writable by a mapping */
static void test_hugetlbfs(void)
{
    g_autofree char *mounted = g_build_filename(path, "huge", NULL);
    Error *err = NULL;
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
    if (write_as(at, IDENTITY, &err)) {
        assert_whole(at, IDENTITY);
    } else {
        assert_error(&err, g_strerror(ENOSPC));
        g_assert_cmpuint(template_dir_size(at), ==, 0);
        g_test_skip("no 2 MiB hugepages: set vm.nr_hugepages to 16 or more");
    }
    close(at);
    g_assert_cmpint(umount(mounted), ==, 0);
    rmdir(mounted);
}

static void add_tests(void)
{
    g_test_add_func("/template-dir/room", test_room);
    g_test_add_func("/template-dir/room-among-own", test_room_among_own);
    g_test_add_func("/template-dir/retired", test_retired);
    g_test_add_func("/template-dir/full", test_full);
    g_test_add_func("/template-dir/hugetlbfs", test_hugetlbfs);
}

int main(int argc, char **argv)
{
    return templates_main(argc, argv, add_tests);
}
