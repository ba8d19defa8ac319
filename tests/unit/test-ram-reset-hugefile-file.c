/*
 * Unit tests for system/ram-reset/hugefile/file.c
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include <mntent.h>
#include <sys/file.h>
#include <sys/resource.h>
#include "system/ram-reset/hugefile/file.h"
#include "system/ram-reset/prim/trusted-file.h"
#include "files.h"
#include "ram.h"

#define POOL      "/sys/kernel/mm/hugepages/hugepages-2048kB/"

static char *dir, *huge_dir;        /* the latter is on hugetlbfs, or NULL */

static int new_ram(const char *path, uint64_t pages)
{
    int fd;

    g_assert_true(hugefile_file_create(path, pages * HUGE_SIZE, &fd, NULL));
    g_assert_cmpint(fd, >=, 0);
    return fd;
}

static void test_ram_file(const char *path)
{
    g_autofree char *plain = g_build_filename(dir, "plain", NULL);
    Error *err = NULL;
    int fd;

    g_assert_true(hugefile_file_open(path, &fd, NULL));
    g_assert_cmpint(fd, ==, -1);
    check_kinds(hugefile_file_open, path, dir, "not a file on hugetlbfs");
    g_assert_false(hugefile_file_create(path, 1, &fd, &err));
    assert_error(&err, "a size of 1 bytes");
    g_assert_cmpint(access(path, F_OK), ==, -1);
    g_assert_false(hugefile_file_create(plain, 4096, &fd, &err));
    assert_error(&err, "not a file on hugetlbfs");
    g_assert_cmpint(access(plain, F_OK), ==, -1);
    g_assert_true(g_file_set_contents(plain, "x", 1, NULL));
    assert_open_refused(hugefile_file_open, plain, "not a file on hugetlbfs");
    unlink(plain);
    fd = new_ram(path, 2);
    check_new_file(fd, 2 * HUGE_SIZE);
    assert_open_refused(hugefile_file_open, path, "another process uses it");
    close(fd);
    g_assert_false(hugefile_file_create(path, HUGE_SIZE, &fd, &err));
    assert_error(&err, "File exists");
    close(opened(hugefile_file_open, path));
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

    assert_open_refused(hugefile_file_open, path, part);
    end(pid);
    close(opened(hugefile_file_open, path));
}

static void test_ram_limited(const char *path)
{
    Error *err = NULL;
    int fd;

    limit_files(HUGE_SIZE);
    g_assert_false(hugefile_file_create(path, 2 * HUGE_SIZE, &fd, &err));
    assert_error(&err, g_strerror(EFBIG));
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

    g_assert_false(trusted_file_is_ours_alone(fd, true));
    end(pid);
    g_assert_true(trusted_file_is_ours_alone(fd, false));
    g_assert_cmpint(close(open(path, O_RDWR | O_NONBLOCK)), ==, 0);
    g_assert_true(trusted_file_is_ours_alone(fd, true));
    g_assert_cmpint(open(path, O_RDONLY | O_NONBLOCK), ==, -1);
    g_assert_cmpint(errno, ==, EWOULDBLOCK);
    close(fd);
    close(opened(hugefile_file_open, path));
}

static uint64_t pool(const char *what)
{
    g_autofree char *name = g_strdup_printf(POOL "%s_hugepages", what);
    g_autofree char *text = NULL;

    return g_file_get_contents(name, &text, NULL, NULL)
           ? g_ascii_strtoull(text, NULL, 10) : 0;
}

/* False if the pool has unexpected figures: try again */
static bool reserve(const char *path, uint64_t pages, uint64_t expected)
{
    g_autofree char *part = g_strdup_printf("%" G_GUINT64_FORMAT " hugepages "
                                            "of 2048 KiB are needed", pages);
    int fd = new_ram(path, pages);
    uint64_t before = pool("resv"), got;
    Error *err = NULL;
    bool ok = hugefile_file_reserve(fd, pages * HUGE_SIZE, HUGE_SIZE, &err);

    got = pool("resv") - before;
    g_assert_cmpint(ok, ==, expected != 0);
    if (!ok) {
        assert_error(&err, part);
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
    Error *err = NULL;

    g_assert_true(hugefile_file_move_lock(from, to, path, NULL));
    g_assert_cmpint(fcntl(from, F_GETFD), ==, -1);
    assert_open_refused(hugefile_file_open, path, "uses it");
    close(to);
    from = opened(hugefile_file_open, path);
    to = new_ram(second, 2);
    g_assert_false(hugefile_file_move_lock(dup(from), to, path, &err));
    assert_error(&err, "another file");
    close(to);
    unlink(second);
    to = open(path, O_RDWR);
    unlink(path);
    g_assert_false(hugefile_file_move_lock(dup(from), to, path, &err));
    assert_error(&err, "another file");
    close(new_ram(path, 2));
    g_assert_false(hugefile_file_move_lock(dup(from), to, path, &err));
    assert_error(&err, "another file");
    close(to);
    to = open(path, O_RDWR);
    g_assert_false(hugefile_file_move_lock(from, to, path, &err));
    assert_error(&err, "another file");
    close(to);
}

static int64_t access_time(int fd)
{
    struct stat st;

    g_assert_cmpint(fstat(fd, &st), ==, 0);
    return hugefile_file_access_time(&st);
}

static void test_ram_watched(const char *path)
{
    int fd = new_ram(path, 2);
    int64_t time, again;
    char c;

    g_assert_true(hugefile_file_watch(fd, &time));
    end(child(read_it, path));
    g_assert_cmpint(pread(fd, &c, 1, HUGE_SIZE), ==, 1);
    g_assert_cmpint(access_time(fd), ==, time);
    end(child(map_it, path));
    g_assert_cmpint(access_time(fd), !=, time);
    g_assert_true(hugefile_file_watch(fd, &again));
    g_assert_cmpint(access_time(fd), ==, again);
    g_assert_cmpint(again, !=, time);
    close(fd);
}

static void test_ram_noticed(const char *path)
{
    int fd = new_ram(path, 1);
    int notice = hugefile_file_notice(fd);

    /* A close by this process or by a reader does not count */
    close(fd);
    end(child(read_it, path));
    g_assert_false(hugefile_file_was_closed(notice));
    fd = opened(hugefile_file_open, path);
    notice = hugefile_file_notice(fd);
    end(child(map_it, path));
    g_assert_true(hugefile_file_was_closed(notice));
    close(fd);
}

/* NULL if there is no writable one with 2 MiB pages */
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

static void run(gconstpointer test)
{
    if (!huge_dir) {
        g_test_skip("no hugetlbfs of 2 MiB pages, and no right to mount one");
    } else if (pool("free") - pool("resv") < 8) {
        g_test_skip("no 2 MiB hugepages: set vm.nr_hugepages to 64 or more");
    } else {
        run_with_file(huge_dir, (PathTest *)test);
    }
}

int main(int argc, char **argv)
{
    int ret;

    g_test_init(&argc, &argv, NULL);
    dir = g_dir_make_tmp("ram-reset-XXXXXX", NULL);
    huge_dir = mounted_dir() ?: mount_hugetlbfs(dir);
    g_test_add_data_func("/hugefile-file/limited", test_ram_limited, run);
    g_test_add_data_func("/hugefile-file/file", test_ram_file, run);
    g_test_add_data_func("/hugefile-file/of-others", test_ram_of_others, run);
    g_test_add_data_func("/hugefile-file/ours-alone", test_ram_is_ours_alone,
                         run);
    g_test_add_data_func("/hugefile-file/reserved", test_ram_reserved, run);
    g_test_add_data_func("/hugefile-file/taken-over", test_ram_taken_over, run);
    g_test_add_data_func("/hugefile-file/watched", test_ram_watched, run);
    g_test_add_data_func("/hugefile-file/noticed", test_ram_noticed, run);
    ret = g_test_run();
    if (huge_dir) {
        unmount_hugetlbfs(huge_dir);
    }
    rmdir(dir);
    g_free(huge_dir);
    g_free(dir);
    return ret;
}
