/*
 * Unit tests for system/ram-reset/hugefile/record.c
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/bitmap.h"
#include <sys/resource.h>
#include "system/ram-reset/hugefile/record.h"
#include "files.h"

static const char *const fields[][2] = {
    { "version", "1" }, { "in-use", "false" }, { "pid", "7" },
    { "boot-id", "b" }, { "device", "8" }, { "inode", "9" },
    { "page-size", "2097152" }, { "pages", "10" }, { "access-time", "-5" },
    { "dirty", "0-0,3-5,9-9" },
};

static char *dir;

/* A record with a valid checksum; without @key if @value is NULL */
static char *record_with(const char *key, const char *value)
{
    GString *s = g_string_new("[hugefile]\n");
    g_autofree char *sum = NULL;

    for (unsigned i = 0; i < G_N_ELEMENTS(fields); i++) {
        const char *v = strcmp(fields[i][0], key) ? fields[i][1] : value;

        if (v) {
            g_string_append_printf(s, "%s=%s\n", fields[i][0], v);
        }
    }
    sum = g_compute_checksum_for_string(G_CHECKSUM_SHA256, s->str, s->len);
    g_string_append_printf(s, "sha256=%s\n", sum);
    return g_string_free(s, false);
}

static int file_with(const char *text, gsize len)
{
    int fd = memfd_create("record", MFD_CLOEXEC);

    g_assert_cmpint(write(fd, text, len), ==, len);
    return fd;
}

/* Text that is no record is refused with the reason */
static void assert_no_record(const char *text, gsize len, const char *part)
{
    HugeRecord rec = { .pid = 1, .boot_id = g_strdup("old") };
    int fd = file_with(text, len);
    Error *err = NULL;

    if (hugefile_record_read(fd, &rec, &err)) {
        g_error("taken for a record: %.*s", (int)len, text);
    }
    g_assert_true(!rec.pid && !rec.boot_id && !rec.pages && !rec.dirty);
    assert_error(&err, part);
    close(fd);
}

static void test_round_trip(void)
{
    GRand *rand = g_rand_new_with_seed(6);
    int fd = file_with("", 0);
    HugeRecord out = { 0 };
    unsigned long dirty[2];

    g_assert_true(hugefile_record_read(fd, &out, NULL));
    g_assert_cmpuint(out.pages, ==, 0);
    for (unsigned i = 0; i < 500; i++) {
        HugeRecord in = {
            .in_use = g_rand_boolean(rand), .pid = g_rand_int(rand),
            .boot_id = hugefile_record_boot_id(), .device = g_rand_int(rand),
            .inode = UINT64_MAX - g_rand_int(rand),
            .page_size = UINT64_C(1) << g_rand_int_range(rand, 12, 64),
            .pages = g_rand_int_range(rand, 1, 101), .dirty = dirty,
            .access_time = INT64_MIN + g_rand_int(rand),
        };

        memset(dirty, 0, sizeof(dirty));
        for (unsigned j = 0; j < in.pages; j++) {
            if (g_rand_int_range(rand, 0, 10) < (int)i % 11) {
                set_bit(j, dirty);
            }
        }
        g_assert_cmpint(hugefile_record_write(fd, &in), ==, 0);
        g_assert_true(hugefile_record_read(fd, &out, NULL));
        g_assert_cmpint(out.in_use, ==, in.in_use);
        g_assert_cmpint(out.pid, ==, in.pid);
        g_assert_cmpstr(out.boot_id, ==, in.boot_id);
        g_assert_cmpuint(out.device, ==, in.device);
        g_assert_cmpuint(out.inode, ==, in.inode);
        g_assert_cmpuint(out.page_size, ==, in.page_size);
        g_assert_cmpint(out.access_time, ==, in.access_time);
        g_assert_cmpuint(out.pages, ==, in.pages);
        g_assert_cmpmem(out.dirty, BITS_TO_LONGS(out.pages) * sizeof(long),
                        dirty, BITS_TO_LONGS(in.pages) * sizeof(long));
        g_free(in.boot_id);
    }
    hugefile_record_clear(&out);
    close(fd);
    g_rand_free(rand);
}

static void test_damage(void)
{
    g_autofree char *text = record_with("", NULL);
    gsize len = strlen(text);
    g_autofree char *more = g_malloc0(32 * 1024 * 1024);
    HugeRecord rec = { 0 };
    int fd = file_with(text, len);

    g_assert_true(hugefile_record_read(fd, &rec, NULL));
    g_assert_cmphex(rec.dirty[0] & 0x20c, ==, 0x208);
    hugefile_record_clear(&rec);
    close(fd);
    for (gsize i = 0; i < len; i++) {
        for (unsigned flip = 1; flip < 256; flip++) {
            text[i] ^= flip;
            assert_no_record(text, len, "checksum");
            text[i] ^= flip;
        }
    }
    memcpy(more, text, len);
    memcpy(more + len, text, len);
    for (gsize i = 1; i <= 2 * len; i++) {
        if (i != len) {
            assert_no_record(more, i, "checksum");
        }
    }
    for (unsigned c = 0; c < 256; c++) {
        more[len] = c;
        assert_no_record(more, len + 1, "checksum");
    }
    assert_no_record(more, 16 * 1024 * 1024 + 1, "large");
}

static void test_nonsense(void)
{
    static const char *const wrong[][2] = {
        { "version", "0" }, { "version", "2" }, { "version", "1.5" },
        { "in-use", "" }, { "in-use", "perhaps" }, { "pid", "x" },
        { "device", "" }, { "inode", "1 2" }, { "page-size", "2M" },
        { "pages", "0" }, { "pages", "-1" }, { "pages", "4294967297" },
        { "pages", "18446744073709551616" }, { "access-time", "now" },
        { "dirty", "0-10" }, { "dirty", "10-10" }, { "dirty", "5-3" },
        { "dirty", "3" }, { "dirty", "1-2-3" }, { "dirty", "1-2," },
        { "dirty", "," }, { "dirty", "-" }, { "dirty", "-1-2" },
        { "dirty", "1--2" }, { "dirty", "0x1-0x2" }, { "dirty", "+1-2" },
        { "dirty", "1-18446744073709551617" }, { "dirty", "1 -2" },
        { "dirty", "18446744073709551616-18446744073709551617" },
        /* The list names each page once; otherwise a long list costs hours */
        { "dirty", "0-9,0-9" }, { "dirty", "2-4,4-5" }, { "dirty", "5-6,1-2" },
    };
    g_autoptr(GString) lines = g_string_new("0-1");
    g_autofree char *long_text = NULL;

    for (unsigned i = 0; i < G_N_ELEMENTS(wrong); i++) {
        g_autofree char *text = record_with(wrong[i][0], wrong[i][1]);

        assert_no_record(text, strlen(text), i < 3 ? "version" : "");
    }
    for (unsigned i = 0; i < 100; i++) {
        g_string_append_printf(lines, "\nx%u=1", i);
    }
    long_text = record_with("dirty", lines->str);
    assert_no_record(long_text, strlen(long_text), "lines");
    for (unsigned i = 0; i < G_N_ELEMENTS(fields); i++) {
        g_autofree char *text = record_with(fields[i][0], NULL);

        assert_no_record(text, strlen(text), "");
    }
}

static bool state_open(const char *path, int *fd, Error **errp)
{
    *fd = hugefile_record_open(path, errp);
    return *fd >= 0;
}

static void test_state_file(const char *path)
{
    g_autofree char *second = g_strdup_printf("%s-2", path);
    int fd;

    check_kinds(state_open, path, dir, "not a regular file");
    fd = opened(state_open, path);
    check_new_file(fd, 0);
    close(fd);
    g_assert_cmpint(link(path, second), ==, 0);
    assert_open_refused(state_open, path, "more than one name");
    unlink(second);
    g_assert_true(g_file_set_contents(path, "a key", -1, NULL));
    g_assert_cmpint(chmod(path, 0600), ==, 0);
    assert_open_refused(state_open, path, "not a state file");
    g_assert_true(g_file_set_contents(path, "[hugefile]\nx", -1, NULL));
    g_assert_cmpint(chmod(path, 0600), ==, 0);
    close(opened(state_open, path));
    g_assert_true(g_file_set_contents(path, "\0\0\0", 3, NULL));
    g_assert_cmpint(chmod(path, 0600), ==, 0);
    close(opened(state_open, path));
    g_assert_cmpint(chmod(path, 0640), ==, 0);
    assert_open_refused(state_open, path, "0640");
    chmod(path, 0600);
    if (geteuid() == 0 && chown(path, 65534, -1) == 0) {
        assert_open_refused(state_open, path, "65534");
    }
}

static void use_state(const char *path)
{
    unsigned long dirty = 1;
    HugeRecord rec = {
        .in_use = true, .pid = getpid(), .pages = 1, .dirty = &dirty,
    };

    g_assert_cmpint(hugefile_record_write(opened(state_open, path), &rec),
                    ==, 0);
}

static void test_state_lock(const char *path)
{
    pid_t pid = child(use_state, path);
    g_autofree char *part = g_strdup_printf("process %d ", pid);
    int fd;

    assert_open_refused(state_open, path, part);
    end(pid);
    fd = opened(state_open, path);
    g_assert_cmpint(ftruncate(fd, 0), ==, 0);
    assert_open_refused(state_open, path, "another process");
    close(fd);
}

/* The result is an error, not SIGXFSZ */
static void test_state_limited(const char *path)
{
    unsigned long dirty = 1;
    HugeRecord rec = { .pid = getpid(), .pages = 1, .dirty = &dirty };
    int fd = opened(state_open, path);

    for (unsigned limit = 0; limit < 100; limit += 10) {
        limit_files(limit);
        g_assert_cmpint(hugefile_record_write(fd, &rec), ==, -EFBIG);
        limit_files(RLIM_INFINITY);
    }
    g_assert_cmpint(hugefile_record_write(fd, &rec), ==, 0);
    close(fd);
}

static void run(gconstpointer test)
{
    run_with_file(dir, (PathTest *)test);
}

int main(int argc, char **argv)
{
    int ret;

    g_test_init(&argc, &argv, NULL);
    dir = g_dir_make_tmp("ram-reset-XXXXXX", NULL);
    g_test_add_func("/hugefile-record/round-trip", test_round_trip);
    g_test_add_func("/hugefile-record/damage", test_damage);
    g_test_add_func("/hugefile-record/nonsense", test_nonsense);
    g_test_add_data_func("/hugefile-record/file", test_state_file, run);
    g_test_add_data_func("/hugefile-record/lock", test_state_lock, run);
    g_test_add_data_func("/hugefile-record/limited", test_state_limited, run);
    ret = g_test_run();
    rmdir(dir);
    g_free(dir);
    return ret;
}
