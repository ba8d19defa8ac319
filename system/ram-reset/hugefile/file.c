/*
 * The file on hugetlbfs that holds guest RAM and outlives QEMU
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include "system/ram-reset/hugefile/file.h"
#include "system/ram-reset/prim/prim.h"
#include "system/ram-reset/prim/trusted-file.h"

#define NS_PER_S INT64_C(1000000000)

static bool hugefile_lock(int fd, Error **errp)
{
    if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
        error_setg(errp, "%s", errno == EWOULDBLOCK ? "another process uses it"
                                                    : strerror(errno));
        return false;
    }
    return true;
}

static bool check_kind(int fd, Error **errp)
{
    g_autofree char *refusal = NULL;
    struct stat st;

    if (fstat(fd, &st) < 0) {
        error_setg(errp, "%s", strerror(errno));
        return false;
    }
    if (S_ISDIR(st.st_mode)) {
        error_setg(errp, "it is a directory; give the name of a file in it");
        return false;
    }
    if (!S_ISREG(st.st_mode) || !prim_is_on_hugetlbfs(fd)) {
        error_setg(errp, "it is not a file on hugetlbfs");
        return false;
    }
    /*
     * Any mode will do: nobody has the file open, see check_unused(), and it is
     * cleared
     */
    refusal = trusted_file_refusal(&st, TRUST_ANY_MODE | TRUST_LINKS);
    if (refusal) {
        error_setg(errp, "%s", refusal);
    }
    return !refusal;
}

/* Refuse also if this is unknown: a file in use must not be cleared */
static bool check_unused(int fd, Error **errp)
{
    if (trusted_file_is_ours_alone(fd, false)) {
        return true;
    }
    if (errno == EAGAIN) {
        error_setg(errp, "another process has it open");
    } else {
        error_setg(errp, "cannot find out whether another process has it open "
                   "(%s); see sysctl fs.leases-enable", strerror(errno));
    }
    return false;
}

bool hugefile_file_open(const char *path, int *fd, Error **errp)
{
    *fd = trusted_file_open(AT_FDCWD, path, O_RDONLY);
    if (*fd < 0) {
        if (errno != ENOENT) {
            error_setg(errp, "%s", errno == EWOULDBLOCK
                                   ? "another process is about to stop using "
                                     "it; try again"
                                   : trusted_file_open_error(errno));
        }
        return errno == ENOENT;
    }
    if (check_kind(*fd, errp) && hugefile_lock(*fd, errp) &&
        check_unused(*fd, errp)) {
        return true;
    }
    close(*fd);
    *fd = -1;
    return false;
}

static bool check_size(int fd, uint64_t size, Error **errp)
{
    struct statfs fs;
    PrimLimit limit;
    int ret;

    if (fstatfs(fd, &fs) == 0 && size % fs.f_bsize) {
        error_setg(errp, "a size of %" G_GUINT64_FORMAT " bytes is not a "
                   "multiple of its hugepages' %lu KiB", size,
                   (unsigned long)fs.f_bsize / 1024);
        return false;
    }
    prim_limit_begin(&limit);
    ret = ftruncate(fd, size);
    prim_limit_end(&limit);
    if (ret < 0) {
        error_setg(errp, "it cannot be given a size of %" G_GUINT64_FORMAT
                   " bytes: %s", size, strerror(errno));
    }
    return ret == 0;
}

/* Read-only, so that hugefile_file_notice() does not report our own close */
static bool hugefile_reopen(int *fd, Error **errp)
{
    g_autofree char *path = g_strdup_printf("/proc/self/fd/%d", *fd);
    int from = *fd;

    *fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (*fd < 0) {
        error_setg(errp, "it cannot be opened: %s", strerror(errno));
    }
    close(from);
    return *fd >= 0 && hugefile_lock(*fd, errp);
}

bool hugefile_file_create(const char *path, uint64_t size, int *fd,
                          Error **errp)
{
    bool locked;

    *fd = trusted_file_open(AT_FDCWD, path, O_RDWR | O_CREAT | O_EXCL);
    if (*fd < 0) {
        error_setg(errp, "it cannot be created: %s", strerror(errno));
        return false;
    }
    locked = hugefile_lock(*fd, errp);
    if (locked && check_kind(*fd, errp) && check_size(*fd, size, errp) &&
        hugefile_reopen(fd, errp)) {
        return true;
    }
    if (locked) {
        unlink(path);
    }
    if (*fd >= 0) {
        close(*fd);
        *fd = -1;
    }
    return false;
}

static uint64_t pool_figure(uint64_t page_size, const char *what)
{
    g_autofree char *text = NULL;
    g_autofree char *name =
        g_strdup_printf("/sys/kernel/mm/hugepages/hugepages-%"
                        G_GUINT64_FORMAT "kB/%s_hugepages", page_size / 1024,
                        what);

    return g_file_get_contents(name, &text, NULL, NULL)
           ? g_ascii_strtoull(text, NULL, 10) : 0;
}

bool hugefile_file_reserve(int fd, uint64_t size, uint64_t page_size,
                           Error **errp)
{
    void *p = mmap(NULL, size, PROT_NONE, MAP_SHARED, fd, 0);
    int err = errno;
    struct stat st;

    if (p != MAP_FAILED) {
        munmap(p, size);
        return true;
    }
    if (err != ENOMEM || fstat(fd, &st) < 0) {
        error_setg(errp, "it cannot be mapped: %s", strerror(err));
        return false;
    }
    error_setg(errp, "%" G_GUINT64_FORMAT " hugepages of %" G_GUINT64_FORMAT
               " KiB are needed, the file has %" G_GUINT64_FORMAT " and the "
               "host %" G_GUINT64_FORMAT " to spare; raise vm.nr_hugepages, or "
               "the size of the mount", size / page_size, page_size / 1024,
               (uint64_t)st.st_blocks * 512 / page_size,
               pool_figure(page_size, "free") - pool_figure(page_size, "resv"));
    return false;
}

bool hugefile_file_move_lock(int from, int to, const char *path, Error **errp)
{
    struct stat ours, theirs, named;
    bool ok = false;

    if (fstat(from, &ours) < 0 || fstat(to, &theirs) < 0) {
        error_setg(errp, "%s", strerror(errno));
    } else if (ours.st_dev != theirs.st_dev || ours.st_ino != theirs.st_ino ||
               lstat(path, &named) < 0 || named.st_dev != ours.st_dev ||
               named.st_ino != ours.st_ino) {
        error_setg(errp, "another file has taken its place");
    } else {
        ok = true;
    }
    close(from);
    return ok && hugefile_lock(to, errp) && check_unused(to, errp);
}

int hugefile_file_notice(int fd)
{
    int notice = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    g_autofree char *path = g_strdup_printf("/proc/self/fd/%d", fd);

    if (notice >= 0 && inotify_add_watch(notice, path, IN_CLOSE_WRITE) < 0) {
        close(notice);
        notice = -1;
    }
    return notice;
}

bool hugefile_file_was_closed(int notice)
{
    char events[1024];
    bool none = read(notice, events, sizeof(events)) < 0 && errno == EAGAIN;

    close(notice);
    return !none;
}

bool hugefile_file_watch(int fd, int64_t *time)
{
    /*
     * A time long past: even a mount with relatime then updates it at each map
     */
    int64_t s = g_random_int_range(1, 1 << 29);
    int64_t ns = g_random_int_range(0, NS_PER_S);
    struct timespec times[2] = {
        { .tv_sec = s, .tv_nsec = ns }, { .tv_nsec = UTIME_OMIT },
    };
    struct statvfs fs;
    struct stat st;

    *time = s * NS_PER_S + ns;
    return futimens(fd, times) == 0 && fstat(fd, &st) == 0 &&
           hugefile_file_access_time(&st) == *time &&
           fstatvfs(fd, &fs) == 0 && !(fs.f_flag & ST_NOATIME) &&
           trusted_file_is_ours_alone(fd, false);
}

int64_t hugefile_file_access_time(const struct stat *st)
{
    return st->st_atim.tv_sec * NS_PER_S + st->st_atim.tv_nsec;
}
