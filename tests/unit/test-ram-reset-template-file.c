/*
 * Unit tests for system/ram-reset/template{file,open,write}.c
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include <sys/file.h>
#include <sys/resource.h>
#include "files.h"
#include "system/ram-reset/template/dir.h"
#include "templates.h"

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
    /* Write the template again, in its place */
    make(dir, IDENTITY);
    assert_whole(dir, IDENTITY);
    assert_absent("snapshot 2");
}

/* Change bytes of a good file, and restore its time */
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
        damage(at, 1 << at % 8);
        assert_refused(IDENTITY, "");
        damage(at, 1 << at % 8);
    }
    assert_whole(dir, IDENTITY);
}

static void test_cut(void)
{
    static const uint64_t sizes[] = { 0, 7, 47, 48, 100, 4096, 3 * MIB };
    g_autofree char *file = path_of(IDENTITY);

    for (unsigned i = 0; i < G_N_ELEMENTS(sizes); i++) {
        make(dir, IDENTITY);
        g_assert_cmpint(truncate(file, sizes[i]), ==, 0);
        assert_refused(IDENTITY, "");
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

/* Another process is writing it, or has died meanwhile */
static void test_unfinished(void)
{
    g_autofree char *file = path_of(IDENTITY);
    g_autofree char *unfinished = g_strconcat(file, ".new", NULL);
    int fd = open(unfinished, O_RDWR | O_CREAT, 0600);
    Error *err = NULL;

    g_assert_cmpint(write(fd, file, 100), ==, 100);
    g_assert_cmpint(flock(fd, LOCK_EX), ==, 0);
    g_assert_false(write_as(dir, IDENTITY, &err));
    assert_error(&err, "another process");
    g_assert_true(template_dir_make_room(dir, MIB, 0, NULL, 0, &err));
    g_assert_true(g_file_test(unfinished, G_FILE_TEST_EXISTS));
    close(fd);
    make(dir, IDENTITY);
    assert_whole(dir, IDENTITY);
    g_assert_false(g_file_test(unfinished, G_FILE_TEST_EXISTS));
    close(open(unfinished, O_RDWR | O_CREAT, 0600));
    g_assert_true(template_dir_make_room(dir, MIB, 0, NULL, 0, &err));
    g_assert_false(g_file_test(unfinished, G_FILE_TEST_EXISTS));
}

static void write_and_read(unsigned times)
{
    for (unsigned i = 0; i < times; i++) {
        Error *err = NULL;

        if (!write_as(dir, IDENTITY, &err)) {
            assert_error(&err, "another process");
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

/* SIGXFSZ must not end the process */
static void test_file_size_limit(void)
{
    struct rlimit before, most;
    Error *err = NULL;

    remove_file();
    g_assert_cmpint(getrlimit(RLIMIT_FSIZE, &before), ==, 0);
    for (uint64_t limit = 0; limit <= 4 * MIB; limit = limit * 2 ?: 1) {
        most = before;
        most.rlim_cur = limit;
        g_assert_cmpint(setrlimit(RLIMIT_FSIZE, &most), ==, 0);
        g_assert_false(write_as(dir, IDENTITY, &err));
        assert_error(&err, "RLIMIT_FSIZE");
        g_assert_cmpint(setrlimit(RLIMIT_FSIZE, &before), ==, 0);
        g_assert_cmpuint(template_dir_size(dir), ==, 0);
        assert_absent(IDENTITY);
    }
    make(dir, IDENTITY);
    assert_whole(dir, IDENTITY);
    remove_file();
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

    /* Few runs stay as they are, and so do many that would get much larger */
    g_assert_cmpuint(joined(many, 2, &bytes), ==, many);
    g_assert_cmpuint(bytes, ==, many * PAGE);
    g_assert_cmpuint(joined(many + 1, 3, &bytes), ==, many + 1);
    g_assert_cmpuint(bytes, ==, (many + 1) * PAGE);
    g_assert_cmpuint(joined(many + 1, 2, &bytes), ==, 1);
    g_assert_cmpuint(bytes, ==, (2 * many + 1) * PAGE);
}

static void add_tests(void)
{
    g_test_add_func("/template-file/round-trip", test_round_trip);
    g_test_add_func("/template-file/damage", test_damage);
    g_test_add_func("/template-file/cut", test_cut);
    g_test_add_func("/template-file/written-to", test_written_to);
    g_test_add_func("/template-file/of-others", test_of_others);
    g_test_add_func("/template-file/joined", test_joined);
    g_test_add_func("/template-file/unfinished", test_unfinished);
    g_test_add_func("/template-file/at-once", test_at_once);
    g_test_add_func("/template-file/file-size-limit", test_file_size_limit);
}

int main(int argc, char **argv)
{
    return templates_main(argc, argv, add_tests);
}
