/*
 * Unit tests for system/ram-reset/hugerecord.c and hugeram.c
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <mntent.h>
#include <signal.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include "../../system/ram-reset/hugeram.h"
#include "../../system/ram-reset/hugerecord.h"
#include "ram.h"

#define POOL      "/sys/kernel/mm/hugepages/hugepages-2048kB/"

static const char *const fields[][2] = {
    { "version", "1" }, { "in-use", "false" }, { "pid", "7" },
    { "boot-id", "b" }, { "device", "8" }, { "inode", "9" },
    { "page-size", "2097152" }, { "pages", "10" }, { "access-time", "-5" },
    { "dirty", "0-0,3-5,9-9" },
};

static char *dir, *huge_dir;        /* the latter is on hugetlbfs, or NULL */

/* A record with a checksum that fits; @value NULL: without @key */
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

static void assert_reason(char *reason, const char *part)
{
    g_assert_nonnull(reason);
    if (!strstr(reason, part)) {
        g_error("\"%s\" does not say \"%s\"", reason, part);
    }
    g_free(reason);
}

/* What is no record says nothing, and why */
static void assert_no_record(const char *text, gsize len, const char *part)
{
    HugeRecord rec = { .pid = 1, .boot_id = g_strdup("old") };
    int fd = file_with(text, len);
    char *reason;

    if (hugerecord_read(fd, &rec, &reason)) {
        g_error("taken for a record: %.*s", (int)len, text);
    }
    g_assert_true(!rec.pid && !rec.boot_id && !rec.pages && !rec.dirty);
    assert_reason(reason, part);
    close(fd);
}

static void test_round_trip(void)
{
    GRand *rand = g_rand_new_with_seed(6);
    int fd = file_with("", 0);
    HugeRecord out = { 0 };
    bool dirty[100];
    char *reason;

    g_assert_false(hugerecord_read(fd, &out, &reason));
    g_assert_null(reason);
    for (unsigned i = 0; i < 500; i++) {
        HugeRecord in = {
            .in_use = g_rand_boolean(rand), .pid = g_rand_int(rand),
            .boot_id = hugerecord_boot_id(), .device = g_rand_int(rand),
            .inode = UINT64_MAX - g_rand_int(rand),
            .page_size = UINT64_C(1) << g_rand_int_range(rand, 12, 64),
            .pages = g_rand_int_range(rand, 1, 101), .dirty = dirty,
            .access_time = INT64_MIN + g_rand_int(rand),
        };

        for (unsigned j = 0; j < in.pages; j++) {
            dirty[j] = g_rand_int_range(rand, 0, 10) < (int)i % 11;
        }
        g_assert_cmpint(hugerecord_write(fd, &in), ==, 0);
        g_assert_true(hugerecord_read(fd, &out, &reason));
        g_assert_cmpint(out.in_use, ==, in.in_use);
        g_assert_cmpint(out.pid, ==, in.pid);
        g_assert_cmpstr(out.boot_id, ==, in.boot_id);
        g_assert_cmpuint(out.device, ==, in.device);
        g_assert_cmpuint(out.inode, ==, in.inode);
        g_assert_cmpuint(out.page_size, ==, in.page_size);
        g_assert_cmpint(out.access_time, ==, in.access_time);
        g_assert_cmpmem(out.dirty, out.pages, dirty, in.pages);
        g_free(in.boot_id);
    }
    hugerecord_clear(&out);
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
    char *reason;

    g_assert_true(hugerecord_read(fd, &rec, &reason));
    g_assert_cmpint(rec.dirty[2] + 2 * rec.dirty[3] + 4 * rec.dirty[9], ==, 6);
    hugerecord_clear(&rec);
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
    };

    for (unsigned i = 0; i < G_N_ELEMENTS(wrong); i++) {
        g_autofree char *text = record_with(wrong[i][0], wrong[i][1]);

        assert_no_record(text, strlen(text), i < 3 ? "version" : "");
    }
    for (unsigned i = 0; i < G_N_ELEMENTS(fields); i++) {
        g_autofree char *text = record_with(fields[i][0], NULL);

        assert_no_record(text, strlen(text), "");
    }
}

/* A process that does @act with @path, and lives until it is killed */
static pid_t child(void (*act)(const char *path), const char *path)
{
    int ready[2];
    pid_t pid;
    char c;

    g_assert_cmpint(pipe(ready), ==, 0);
    pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        act(path);
        g_assert_cmpint(write(ready[1], "", 1), ==, 1);
        while (true) {
            pause();
        }
    }
    close(ready[1]);
    g_assert_cmpint(read(ready[0], &c, 1), ==, 1);
    close(ready[0]);
    return pid;
}

static void end(pid_t pid)
{
    g_assert_cmpint(kill(pid, SIGKILL), ==, 0);
    g_assert_cmpint(waitpid(pid, NULL, 0), ==, pid);
}

typedef char *Open(const char *path, int *fd);

static char *state_open(const char *path, int *fd)
{
    char *reason;

    *fd = hugerecord_open(path, &reason);
    return reason;
}

static void assert_refused(Open *open, const char *path, const char *part)
{
    int fd;

    assert_reason(open(path, &fd), part);
    g_assert_cmpint(fd, ==, -1);
}

static int opened(Open *open, const char *path)
{
    int fd;

    g_assert_null(open(path, &fd));
    g_assert_cmpint(fd, >=, 0);
    return fd;
}

static void check_kinds(Open *open, const char *path, const char *fifo)
{
    g_autofree char *second = g_build_filename(dir, "link", NULL);

    g_assert_cmpint(mkfifo(path, 0600), ==, 0);
    assert_refused(open, path, fifo);
    unlink(path);
    g_assert_cmpint(mkdir(path, 0700), ==, 0);
    assert_refused(open, path, "directory");
    rmdir(path);
    g_assert_cmpint(symlink(path, second), ==, 0);
    assert_refused(open, second, "symbolic link");
    unlink(second);
}

static void check_new_file(int fd, off_t size)
{
    struct stat st;

    g_assert_cmpint(fstat(fd, &st), ==, 0);
    g_assert_cmpint(st.st_mode, ==, S_IFREG | 0600);
    g_assert_cmpint(st.st_size, ==, size);
    g_assert_cmpint(fcntl(fd, F_GETFD), ==, FD_CLOEXEC);
}

static void test_state_file(const char *path)
{
    g_autofree char *second = g_strdup_printf("%s-2", path);
    int fd;

    check_kinds(state_open, path, "not a regular file");
    fd = opened(state_open, path);
    check_new_file(fd, 0);
    close(fd);
    g_assert_cmpint(link(path, second), ==, 0);
    assert_refused(state_open, path, "more than one name");
    unlink(second);
    g_assert_true(g_file_set_contents(path, "a key", -1, NULL));
    g_assert_cmpint(chmod(path, 0600), ==, 0);
    assert_refused(state_open, path, "not a state file");
    g_assert_true(g_file_set_contents(path, "[hugefile]\nx", -1, NULL));
    g_assert_cmpint(chmod(path, 0600), ==, 0);
    close(opened(state_open, path));
    g_assert_true(g_file_set_contents(path, "\0\0\0", 3, NULL));
    g_assert_cmpint(chmod(path, 0600), ==, 0);
    close(opened(state_open, path));
    g_assert_cmpint(chmod(path, 0640), ==, 0);
    assert_refused(state_open, path, "0640");
    chmod(path, 0600);
    if (geteuid() == 0 && chown(path, 65534, -1) == 0) {
        assert_refused(state_open, path, "65534");
    }
}

static void use_state(const char *path)
{
    bool dirty = true;
    HugeRecord rec = {
        .in_use = true, .pid = getpid(), .pages = 1, .dirty = &dirty,
    };

    g_assert_cmpint(hugerecord_write(opened(state_open, path), &rec), ==, 0);
}

static void test_state_lock(const char *path)
{
    pid_t pid = child(use_state, path);
    g_autofree char *part = g_strdup_printf("process %d ", pid);
    int fd;

    assert_refused(state_open, path, part);
    end(pid);
    fd = opened(state_open, path);
    g_assert_cmpint(ftruncate(fd, 0), ==, 0);
    assert_refused(state_open, path, "another process");
    close(fd);
}

static void limit_files(uint64_t bytes)
{
    struct rlimit most;

    g_assert_cmpint(getrlimit(RLIMIT_FSIZE, &most), ==, 0);
    most.rlim_cur = bytes;
    g_assert_cmpint(setrlimit(RLIMIT_FSIZE, &most), ==, 0);
}

/* An error, no SIGXFSZ */
static void test_state_limited(const char *path)
{
    bool dirty = true;
    HugeRecord rec = { .pid = getpid(), .pages = 1, .dirty = &dirty };
    int fd = opened(state_open, path);

    for (unsigned limit = 0; limit < 100; limit += 10) {
        limit_files(limit);
        g_assert_cmpint(hugerecord_write(fd, &rec), ==, -EFBIG);
        limit_files(RLIM_INFINITY);
    }
    g_assert_cmpint(hugerecord_write(fd, &rec), ==, 0);
    close(fd);
}

static int new_ram(const char *path, uint64_t pages)
{
    int fd;

    g_assert_null(hugeram_create(path, pages * HUGE_SIZE, &fd));
    g_assert_cmpint(fd, >=, 0);
    return fd;
}

static void test_ram_file(const char *path)
{
    g_autofree char *plain = g_build_filename(dir, "plain", NULL);
    int fd;

    g_assert_null(hugeram_open(path, &fd));
    g_assert_cmpint(fd, ==, -1);
    check_kinds(hugeram_open, path, "not a file on hugetlbfs");
    assert_reason(hugeram_create(path, 1, &fd), "a size of 1 bytes");
    g_assert_cmpint(access(path, F_OK), ==, -1);
    assert_reason(hugeram_create(plain, 4096, &fd), "not a file on hugetlbfs");
    g_assert_cmpint(access(plain, F_OK), ==, -1);
    g_assert_true(g_file_set_contents(plain, "x", 1, NULL));
    assert_refused(hugeram_open, plain, "not a file on hugetlbfs");
    unlink(plain);
    fd = new_ram(path, 2);
    check_new_file(fd, 2 * HUGE_SIZE);
    assert_refused(hugeram_open, path, "another process uses it");
    close(fd);
    assert_reason(hugeram_create(path, HUGE_SIZE, &fd), "File exists");
    close(opened(hugeram_open, path));
}

static void read_it(const char *path)
{
    char c;

    g_assert_cmpint(read(open(path, O_RDONLY), &c, 1), ==, 1);
}

static void map_it(const char *path)
{
    int fd = open(path, O_RDWR);

    g_assert_true(mmap(NULL, HUGE_SIZE, PROT_READ, MAP_SHARED, fd, 0) !=
                  MAP_FAILED);
    close(fd);
}

static void lock_it(const char *path)
{
    g_assert_cmpint(flock(open(path, O_RDWR), LOCK_EX), ==, 0);
}

static void check_in_use(const char *path, void (*act)(const char *path),
                         const char *part)
{
    pid_t pid = child(act, path);

    assert_refused(hugeram_open, path, part);
    end(pid);
    close(opened(hugeram_open, path));
}

static void test_ram_limited(const char *path)
{
    int fd;

    limit_files(HUGE_SIZE);
    assert_reason(hugeram_create(path, 2 * HUGE_SIZE, &fd),
                  g_strerror(EFBIG));
    limit_files(RLIM_INFINITY);
    g_assert_cmpint(access(path, F_OK), ==, -1);
}

static void test_ram_of_others(const char *path)
{
    close(new_ram(path, 2));
    check_in_use(path, read_it, "has it open");
    check_in_use(path, map_it, "has it open");
    check_in_use(path, lock_it, "uses it");
}

static void test_ram_is_ours_alone(const char *path)
{
    int fd = new_ram(path, 2);
    pid_t pid = child(read_it, path);

    g_assert_false(hugeram_is_ours_alone(fd, true));
    end(pid);
    g_assert_true(hugeram_is_ours_alone(fd, false));
    g_assert_cmpint(close(open(path, O_RDWR | O_NONBLOCK)), ==, 0);
    g_assert_true(hugeram_is_ours_alone(fd, true));
    g_assert_cmpint(open(path, O_RDONLY | O_NONBLOCK), ==, -1);
    g_assert_cmpint(errno, ==, EWOULDBLOCK);
    close(fd);
    close(opened(hugeram_open, path));
}

static uint64_t pool(const char *what)
{
    g_autofree char *name = g_strdup_printf(POOL "%s_hugepages", what);
    g_autofree char *text = NULL;

    return g_file_get_contents(name, &text, NULL, NULL)
           ? g_ascii_strtoull(text, NULL, 10) : 0;
}

/* False if the pool's figures are not what they should be: try again */
static bool reserve(const char *path, uint64_t pages, uint64_t expected)
{
    g_autofree char *part = g_strdup_printf("%" G_GUINT64_FORMAT " hugepages "
                                            "of 2048 KiB are needed", pages);
    int fd = new_ram(path, pages);
    uint64_t before = pool("resv"), got;
    char *reason = hugeram_reserve(fd, pages * HUGE_SIZE, HUGE_SIZE);

    got = pool("resv") - before;
    if (expected) {
        g_assert_null(reason);
    } else {
        assert_reason(reason, part);
    }
    unlink(path);
    close(fd);
    return got == expected && pool("resv") == before;
}

static void test_ram_reserved(const char *path)
{
    unsigned tries = 5;

    /* Others may have used the pool meanwhile */
    while (!reserve(path, 3, 3) || !reserve(path, pool("nr") + 1, 0)) {
        g_assert_cmpuint(--tries, >, 0);
    }
}

static void test_ram_taken_over(const char *path)
{
    g_autofree char *second = g_strdup_printf("%s-2", path);
    int from = new_ram(path, 2), to = open(path, O_RDWR);

    g_assert_null(hugeram_take_over(from, to, path));
    g_assert_cmpint(fcntl(from, F_GETFD), ==, -1);
    assert_refused(hugeram_open, path, "uses it");
    close(to);
    from = opened(hugeram_open, path);
    to = new_ram(second, 2);
    assert_reason(hugeram_take_over(dup(from), to, path), "another file");
    close(to);
    unlink(second);
    to = open(path, O_RDWR);
    unlink(path);
    assert_reason(hugeram_take_over(dup(from), to, path), "another file");
    close(new_ram(path, 2));
    assert_reason(hugeram_take_over(dup(from), to, path), "another file");
    close(to);
    to = open(path, O_RDWR);
    assert_reason(hugeram_take_over(from, to, path), "another file");
    close(to);
}

static int64_t access_time(int fd)
{
    struct stat st;

    g_assert_cmpint(fstat(fd, &st), ==, 0);
    return hugeram_access_time(&st);
}

static void test_ram_watched(const char *path)
{
    int fd = new_ram(path, 2);
    int64_t time, again;
    char c;

    g_assert_true(hugeram_watch(fd, &time));
    end(child(read_it, path));
    g_assert_cmpint(pread(fd, &c, 1, HUGE_SIZE), ==, 1);
    g_assert_cmpint(access_time(fd), ==, time);
    end(child(map_it, path));
    g_assert_cmpint(access_time(fd), !=, time);
    g_assert_true(hugeram_watch(fd, &again));
    g_assert_cmpint(access_time(fd), ==, again);
    g_assert_cmpint(again, !=, time);
    close(fd);
}

static void test_ram_noticed(const char *path)
{
    int fd = new_ram(path, 1);
    int notice = hugeram_notice(fd);

    /* Our own close does not count, and neither does that of a reader */
    close(fd);
    end(child(read_it, path));
    g_assert_false(hugeram_was_closed(notice));
    fd = opened(hugeram_open, path);
    notice = hugeram_notice(fd);
    end(child(map_it, path));
    g_assert_true(hugeram_was_closed(notice));
    close(fd);
}

/* NULL if there is none with 2 MiB pages to which we may write */
static char *mounted_dir(void)
{
    FILE *mounts = setmntent("/proc/mounts", "r");
    struct mntent *m;

    while ((m = getmntent(mounts))) {
        const char *size = hasmntopt(m, "pagesize");

        if (!strcmp(m->mnt_type, "hugetlbfs") && size &&
            g_str_has_prefix(size, "pagesize=2M") && !hasmntopt(m, "noatime")) {
            g_autofree char *name = g_build_filename(m->mnt_dir,
                                                     "ram-reset-XXXXXX", NULL);

            if (g_mkdtemp(name)) {
                endmntent(mounts);
                return g_steal_pointer(&name);
            }
        }
    }
    endmntent(mounts);
    return NULL;
}

typedef void Test(const char *path);

static void run(const char *in, Test *test)
{
    g_autofree char *path = g_build_filename(in, "file", NULL);

    test(path);
    unlink(path);
}

static void run_state(gconstpointer test)
{
    run(dir, (Test *)test);
}

static void run_ram(gconstpointer test)
{
    if (!huge_dir) {
        g_test_skip("no hugetlbfs of 2 MiB pages, and no right to mount one");
    } else if (pool("free") - pool("resv") < 8) {
        g_test_skip("no 2 MiB hugepages: set vm.nr_hugepages to 64 or more");
    } else {
        run(huge_dir, (Test *)test);
    }
}

int main(int argc, char **argv)
{
    int ret;

    g_test_init(&argc, &argv, NULL);
    dir = g_dir_make_tmp("ram-reset-XXXXXX", NULL);
    huge_dir = mounted_dir() ?: mount_hugetlbfs(dir);
    g_test_add_func("/hugerecord/round-trip", test_round_trip);
    g_test_add_func("/hugerecord/damage", test_damage);
    g_test_add_func("/hugerecord/nonsense", test_nonsense);
    g_test_add_data_func("/hugerecord/file", test_state_file, run_state);
    g_test_add_data_func("/hugerecord/lock", test_state_lock, run_state);
    g_test_add_data_func("/hugerecord/limited", test_state_limited, run_state);
    g_test_add_data_func("/hugeram/limited", test_ram_limited, run_ram);
    g_test_add_data_func("/hugeram/file", test_ram_file, run_ram);
    g_test_add_data_func("/hugeram/of-others", test_ram_of_others, run_ram);
    g_test_add_data_func("/hugeram/ours-alone", test_ram_is_ours_alone,
                         run_ram);
    g_test_add_data_func("/hugeram/reserved", test_ram_reserved, run_ram);
    g_test_add_data_func("/hugeram/taken-over", test_ram_taken_over, run_ram);
    g_test_add_data_func("/hugeram/watched", test_ram_watched, run_ram);
    g_test_add_data_func("/hugeram/noticed", test_ram_noticed, run_ram);
    ret = g_test_run();
    if (huge_dir) {
        unmount_hugetlbfs(huge_dir);
    }
    rmdir(dir);
    g_free(huge_dir);
    g_free(dir);
    return ret;
}
