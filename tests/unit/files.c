/*
 * Files that are opened, refused, and used by other processes
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include <sys/prctl.h>
#include <sys/resource.h>
#include "files.h"

void assert_error(Error **err, const char *part)
{
    g_assert_nonnull(*err);
    if (!strstr(error_get_pretty(*err), part)) {
        g_error("\"%s\" does not say \"%s\"", error_get_pretty(*err), part);
    }
    error_free(*err);
    *err = NULL;
}

pid_t child(void (*act)(const char *path), const char *path)
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

void end(pid_t pid)
{
    g_assert_cmpint(kill(pid, SIGKILL), ==, 0);
    g_assert_cmpint(waitpid(pid, NULL, 0), ==, pid);
}

void assert_open_refused(Open *open, const char *path, const char *part)
{
    Error *err = NULL;
    int fd;

    g_assert_false(open(path, &fd, &err));
    assert_error(&err, part);
    g_assert_cmpint(fd, ==, -1);
}

int opened(Open *open, const char *path)
{
    int fd;

    g_assert_true(open(path, &fd, NULL));
    g_assert_cmpint(fd, >=, 0);
    return fd;
}

void check_kinds(Open *open, const char *path, const char *link_dir,
                 const char *fifo)
{
    g_autofree char *second = g_build_filename(link_dir, "link", NULL);

    g_assert_cmpint(mkfifo(path, 0600), ==, 0);
    assert_open_refused(open, path, fifo);
    unlink(path);
    g_assert_cmpint(mkdir(path, 0700), ==, 0);
    assert_open_refused(open, path, "directory");
    rmdir(path);
    g_assert_cmpint(symlink(path, second), ==, 0);
    assert_open_refused(open, second, "symbolic link");
    unlink(second);
}

void check_new_file(int fd, off_t size)
{
    struct stat st;

    g_assert_cmpint(fstat(fd, &st), ==, 0);
    g_assert_cmpint(st.st_mode, ==, S_IFREG | 0600);
    g_assert_cmpint(st.st_size, ==, size);
    g_assert_cmpint(fcntl(fd, F_GETFD), ==, FD_CLOEXEC);
}

void limit_files(uint64_t bytes)
{
    struct rlimit most;

    g_assert_cmpint(getrlimit(RLIMIT_FSIZE, &most), ==, 0);
    most.rlim_cur = bytes;
    g_assert_cmpint(setrlimit(RLIMIT_FSIZE, &most), ==, 0);
}

void run_with_file(const char *in, PathTest *test)
{
    g_autofree char *path = g_build_filename(in, "file", NULL);

    test(path);
    unlink(path);
}
