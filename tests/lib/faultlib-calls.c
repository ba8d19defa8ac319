/*
 * The system calls that faultlib.c makes fail
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/vfs.h>
#include <unistd.h>
#include "faultlib.h"

#define CALLER __builtin_return_address(0)

static int failed(void)
{
    return control->mode == LIE ? 0 : -1;
}

#define FAIL(kind, name, params, args) \
    int name params \
    { \
        return fires(KIND_##kind, CALLER) ? failed() : REAL(name) args; \
    }

#define FAIL_FD(kind, disk, name, params, args) \
    int name params \
    { \
        return fires(kind_of(fd, KIND_##kind, KIND_##disk), CALLER) \
               ? failed() : REAL(name) args; \
    }

FAIL(faccessat, faccessat,
     (int dir, const char *path, int mode, int flags), (dir, path, mode, flags))
FAIL_FD(fallocate, disk_other, fallocate64,
        (int fd, int mode, off64_t offset, off64_t len),
        (fd, mode, offset, len))
FAIL_FD(flock, disk_other, flock, (int fd, int operation), (fd, operation))
FAIL_FD(fstat, disk_other, fstat64, (int fd, struct stat64 *st), (fd, st))
FAIL_FD(fstatfs, disk_other, fstatfs64, (int fd, struct statfs64 *st), (fd, st))
FAIL_FD(fstatvfs, disk_other, fstatvfs64, (int fd, struct statvfs64 *st),
        (fd, st))
FAIL_FD(fsync, disk_flush, fsync, (int fd), (fd))
FAIL_FD(fsync, disk_flush, fdatasync, (int fd), (fd))
FAIL_FD(ftruncate, disk_other, ftruncate64, (int fd, off64_t len), (fd, len))
FAIL_FD(futimens, disk_other, futimens,
        (int fd, const struct timespec times[2]), (fd, times))
FAIL(fstatat, fstatat64,
     (int dir, const char *path, struct stat64 *st, int flags),
     (dir, path, st, flags))
FAIL(fstatat, lstat64, (const char *path, struct stat64 *st), (path, st))
FAIL(getrlimit, getrlimit64,
     (__rlimit_resource_t resource, struct rlimit64 *limit), (resource, limit))
FAIL(inotify, inotify_add_watch, (int fd, const char *path, uint32_t mask),
     (fd, path, mask))
FAIL(inotify, inotify_init1, (int flags), (flags))
FAIL(madvise, madvise, (void *start, size_t len, int advice),
     (start, len, advice))
FAIL(memfd_create, memfd_create, (const char *name, unsigned flags),
     (name, flags))
FAIL(mincore, mincore, (void *start, size_t len, unsigned char *vec),
     (start, len, vec))
FAIL(mkdir, mkdir, (const char *path, mode_t mode), (path, mode))
FAIL(renameat, renameat, (int dir, const char *from, int to_dir, const char *to),
     (dir, from, to_dir, to))
FAIL(unlink, unlink, (const char *path), (path))
FAIL(unlink, unlinkat, (int dir, const char *path, int flags),
     (dir, path, flags))

int dup3(int fd, int to, int flags)
{
    return fires(KIND_dup3, CALLER) ? (control->mode == LIE ? to : -1)
                                    : REAL(dup3)(fd, to, flags);
}

/* Linux closes it all the same; a lie leaves it open */
int close(int fd)
{
    Kind kind = kind_of(fd, KIND_close, NONE);
    int err;

    if (!fires(kind, CALLER)) {
        return REAL(close)(fd);
    }
    err = errno;
    if (control->mode != LIE) {
        REAL(close)(fd);
    }
    errno = err;
    return failed();
}

/* Does it, lest what is left behind be taken for a leak of QEMU's */
int munmap(void *start, size_t len)
{
    int err;

    if (!fires(KIND_munmap, CALLER)) {
        return REAL(munmap)(start, len);
    }
    err = errno;
    if (control->mode != LIE) {
        REAL(munmap)(start, len);
    }
    errno = err;
    return failed();
}

/* Other requests are KVM's and devices', without which QEMU cannot go on */
int ioctl(int fd, unsigned long request, ...)
{
    va_list ap;
    void *arg;

    va_start(ap, request);
    arg = va_arg(ap, void *);
    va_end(ap);
    return (request & 0xffff) == ('f' << 8 | 16) && fires(KIND_ioctl, CALLER)
           ? failed() : REAL(ioctl)(fd, request, arg);
}

int fcntl64(int fd, int command, ...)
{
    Kind kind = kind_of(fd, KIND_fcntl, KIND_disk_other);
    va_list ap;
    void *arg;

    va_start(ap, command);
    arg = va_arg(ap, void *);
    va_end(ap);
    return fires(kind, CALLER) ? failed() : REAL(fcntl64)(fd, command, arg);
}

static int mode_of(int flags, va_list ap)
{
    return flags & (O_CREAT | O_TMPFILE) ? va_arg(ap, int) : 0;
}

int open64(const char *path, int flags, ...)
{
    va_list ap;
    int mode;

    va_start(ap, flags);
    mode = mode_of(flags, ap);
    va_end(ap);
    return fires(KIND_open, CALLER) ? -1 : REAL(open64)(path, flags, mode);
}

int openat64(int dir, const char *path, int flags, ...)
{
    va_list ap;
    int mode;

    va_start(ap, flags);
    mode = mode_of(flags, ap);
    va_end(ap);
    return fires(KIND_open, CALLER) ? -1
                                    : REAL(openat64)(dir, path, flags, mode);
}

/* Stacks of coroutines and threads are spared: QEMU aborts without them */
void *mmap64(void *start, size_t len, int prot, int flags, int fd,
             off64_t offset)
{
    return !(flags & MAP_STACK) && fires(KIND_mmap, CALLER)
           ? MAP_FAILED : REAL(mmap64)(start, len, prot, flags, fd, offset);
}

void *mremap(void *old, size_t old_len, size_t len, int flags, ...)
{
    va_list ap;
    void *to;

    va_start(ap, flags);
    to = flags & MREMAP_FIXED ? va_arg(ap, void *) : NULL;
    va_end(ap);
    return fires(KIND_mremap, CALLER)
           ? MAP_FAILED : REAL(mremap)(old, old_len, len, flags, to);
}

off64_t lseek64(int fd, off64_t offset, int whence)
{
    return fires(kind_of(fd, KIND_lseek, KIND_disk_other), CALLER)
           ? -1 : REAL(lseek64)(fd, offset, whence);
}

/* How much may be done of @len bytes, which can be half; -1: fail */
static ssize_t allowed(Kind kind, size_t len, const void *caller)
{
    if (!fires(kind, caller)) {
        return len;
    }
    return control->err == SHORT ? (ssize_t)(len + 1) / 2 : -1;
}

ssize_t pread64(int fd, void *buf, size_t len, off64_t offset)
{
    ssize_t n = allowed(kind_of(fd, KIND_pread, KIND_disk_read), len, CALLER);

    return n < 0 ? n : REAL(pread64)(fd, buf, n, offset);
}

ssize_t __pread64_chk(int fd, void *buf, size_t len, off64_t offset,
                      size_t room);

ssize_t __pread64_chk(int fd, void *buf, size_t len, off64_t offset,
                      size_t room)
{
    ssize_t n = allowed(kind_of(fd, KIND_pread, KIND_disk_read), len, CALLER);

    return n < 0 ? n : REAL(__pread64_chk)(fd, buf, n, offset, room);
}

ssize_t pwrite64(int fd, const void *buf, size_t len, off64_t offset)
{
    ssize_t n = allowed(kind_of(fd, KIND_pwrite, KIND_disk_write), len, CALLER);

    if (n < 0 && control->mode == LIE) {
        return len;
    }
    return n < 0 ? n : REAL(pwrite64)(fd, buf, n, offset);
}

ssize_t preadv64(int fd, const struct iovec *iov, int nr, off64_t offset)
{
    return fires(kind_of(fd, NONE, KIND_disk_read), CALLER)
           ? -1 : REAL(preadv64)(fd, iov, nr, offset);
}

ssize_t pwritev64(int fd, const struct iovec *iov, int nr, off64_t offset)
{
    return fires(kind_of(fd, NONE, KIND_disk_write), CALLER)
           ? -1 : REAL(pwritev64)(fd, iov, nr, offset);
}

ssize_t read(int fd, void *buf, size_t len)
{
    ssize_t n = allowed(kind_of(fd, KIND_read, KIND_disk_read), len, CALLER);

    return n < 0 ? n : REAL(read)(fd, buf, n);
}

ssize_t write(int fd, const void *buf, size_t len)
{
    ssize_t n = allowed(kind_of(fd, KIND_write, KIND_disk_write), len, CALLER);

    return n < 0 ? n : REAL(write)(fd, buf, n);
}

ssize_t readlink(const char *path, char *buf, size_t len)
{
    return fires(KIND_readlink, CALLER) ? -1 : REAL(readlink)(path, buf, len);
}

DIR *fdopendir(int fd)
{
    return fires(KIND_fdopendir, CALLER) ? NULL : REAL(fdopendir)(fd);
}

struct dirent64 *readdir64(DIR *dir)
{
    return fires(KIND_readdir, CALLER) ? NULL : REAL(readdir64)(dir);
}

/* As glib does when there can be no thread */
void *g_thread_try_new(const char *name, void *(*func)(void *), void *opaque,
                       void *err);

void *g_thread_try_new(const char *name, void *(*func)(void *), void *opaque,
                       void *err)
{
    return fires(KIND_thread, CALLER)
           ? NULL : REAL(g_thread_try_new)(name, func, opaque, err);
}

long syscall(long number, ...)
{
    Kind kind = number == SYS_mbind || number == SYS_get_mempolicy ? KIND_numa :
                number == SYS_userfaultfd ? KIND_userfaultfd : NONE;
    va_list ap;
    long a[6];

    va_start(ap, number);
    for (unsigned i = 0; i < 6; i++) {
        a[i] = va_arg(ap, long);
    }
    va_end(ap);
    return kind != NONE && fires(kind, CALLER)
           ? -1 : REAL(syscall)(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}
