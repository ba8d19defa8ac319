/*
 * Calls that fail when a test wants them to: the calls
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include <dirent.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include "faults.h"
#include "faults-wrap.h"

#define MAX_ERRORS 8

static const struct {
    const char *name;
    int errors[MAX_ERRORS];
} fault_kinds[FAULT_KINDS] = {
    [FAULT_CLOSE] = { "close", { EIO, EINTR } },
    [FAULT_DUP3] = { "dup3", { EINTR, EBUSY, EMFILE, EPERM } },
    [FAULT_FACCESSAT] = { "faccessat", { EIO, ENOMEM, EPERM } },
    [FAULT_FALLOCATE] = { "fallocate", { ENOSPC, EIO, EINTR, EPERM, ENOMEM } },
    [FAULT_FCNTL] = { "fcntl", { EAGAIN, EPERM, ENOMEM, EINTR } },
    [FAULT_FDOPENDIR] = { "fdopendir", { ENOMEM } },
    [FAULT_FLOCK] = { "flock", { EAGAIN, EINTR, ENOLCK } },
    [FAULT_FSTAT] = { "fstat", { EIO, ENOMEM } },
    [FAULT_FSTATAT] = { "fstatat", { EIO, ENOMEM, EPERM } },
    [FAULT_FSTATFS] = { "fstatfs", { EIO, EINTR, ENOMEM } },
    [FAULT_FSTATVFS] = { "fstatvfs", { EIO, EINTR, ENOMEM } },
    [FAULT_FSYNC] = { "fsync", { EIO, ENOSPC, EINTR } },
    [FAULT_FTRUNCATE] = { "ftruncate", { EIO, EINTR, EPERM, ENOSPC } },
    [FAULT_FUTIMENS] = { "futimens", { EPERM, EIO } },
    [FAULT_GETRLIMIT] = { "getrlimit", { EPERM } },
    [FAULT_GET_CONTENTS] = { "g_file_get_contents", { EIO, EMFILE } },
    [FAULT_INOTIFY_ADD_WATCH] = { "inotify_add_watch", { ENOSPC, ENOMEM } },
    [FAULT_INOTIFY_INIT] = { "inotify_init1", { EMFILE, ENOMEM } },
    [FAULT_IOCTL] = { "ioctl", { ENOTTY, ENOMEM, EINTR, EPERM } },
    [FAULT_LSEEK] = { "lseek", { EINVAL, EIO, EINTR } },
    [FAULT_LSTAT] = { "lstat", { EIO, ENOMEM, EPERM } },
    [FAULT_MADVISE] = { "madvise", { ENOMEM, EAGAIN, EPERM, EIO } },
    [FAULT_MEMFD_CREATE] = { "memfd_create", { EMFILE, ENOMEM, EPERM } },
    [FAULT_MINCORE] = { "mincore", { EAGAIN, ENOMEM, EPERM } },
    [FAULT_MMAP] = { "mmap", { ENOMEM, EAGAIN, EPERM } },
    [FAULT_MREMAP] = { "mremap", { ENOMEM, EAGAIN, EPERM } },
    [FAULT_MUNMAP] = { "munmap", { ENOMEM, EPERM } },
    [FAULT_OPEN] = { "open", { EMFILE, ENOMEM, EPERM, EINTR, EIO } },
    [FAULT_OPENAT] = { "openat", { EMFILE, ENOMEM, EPERM, EINTR, EIO } },
    [FAULT_PREAD] = { "pread", { EIO, EINTR, ENOMEM, FAULT_SHORT } },
    [FAULT_PWRITE] = { "pwrite", { ENOSPC, EIO, EINTR, EAGAIN, FAULT_SHORT } },
    [FAULT_READ] = { "read", { EIO, EINTR, ENOMEM } },
    [FAULT_READDIR] = { "readdir", { EIO, ENOMEM } },
    [FAULT_READLINK] = { "readlink", { EIO, ENOMEM, EPERM } },
    [FAULT_REALLOC] = { "realloc", { ENOMEM } },
    [FAULT_RENAMEAT] = { "renameat", { ENOSPC, EIO, EPERM, ENOMEM } },
    [FAULT_SYSCALL] = { "syscall (NUMA)", { ENOSYS, EPERM, ENOMEM, EIO } },
    [FAULT_TRY_MALLOC] = { "g_try_malloc", { ENOMEM } },
    [FAULT_UNLINK] = { "unlink", { EIO, EPERM } },
    [FAULT_UNLINKAT] = { "unlinkat", { EIO, EPERM, ENOMEM } },
};

static struct {
    bool on;
    FaultKind kind;
    unsigned nth, fired;
    int err;
    FaultMode mode;
    unsigned calls;                 /* of @kind */
    struct {
        void *start;
        size_t len;
    } kept[64];                     /* by munmap() */
    unsigned nr_kept;
} faults;

static FaultKind lacking = FAULT_KINDS;

void faults_lack(FaultKind kind)
{
    lacking = kind;
}

const char *fault_name(FaultKind kind)
{
    return fault_kinds[kind].name;
}

const int *fault_errors(FaultKind kind)
{
    return fault_kinds[kind].errors;
}

void faults_arm(FaultKind kind, unsigned nth, int err, FaultMode mode)
{
    memset(&faults, 0, sizeof(faults));
    faults.kind = kind;
    faults.nth = nth;
    faults.err = err;
    faults.mode = mode;
    faults.on = true;
}

unsigned faults_disarm(void)
{
    faults.on = false;
    for (unsigned i = 0; faults.mode != FAULT_LIE && i < faults.nr_kept; i++) {
        munmap(faults.kept[i].start, faults.kept[i].len);
    }
    return faults.fired;
}

int faults_error(FaultKind kind)
{
    return kind == faults.kind ? faults.err : 0;
}

/* Whether this call must not do its work; it then returns -1 or 0 */
static bool fires(FaultKind kind)
{
    if (faults.on && kind == lacking) {
        errno = ENOTTY;
        return true;
    }
    if (!faults.on || kind != faults.kind || ++faults.calls < faults.nth ||
        (faults.calls > faults.nth && faults.mode != FAULT_FROM_THEN_ON)) {
        return false;
    }
    faults.fired++;
    errno = faults.err;
    return true;
}

static int failed(void)
{
    return faults.mode == FAULT_LIE ? 0 : -1;
}

#define WRAP_INT(kind, name, params, args) \
    int __wrap_##name params \
    { \
        return fires(kind) ? failed() : __real_##name args; \
    }

WRAP_INT(FAULT_DUP3, dup3, (int from, int to, int flags), (from, to, flags))
WRAP_INT(FAULT_FACCESSAT, faccessat,
         (int dir, const char *path, int mode, int flags),
         (dir, path, mode, flags))
WRAP_INT(FAULT_FALLOCATE, fallocate64,
         (int fd, int mode, off64_t offset, off64_t len),
         (fd, mode, offset, len))
WRAP_INT(FAULT_FLOCK, flock, (int fd, int operation), (fd, operation))
WRAP_INT(FAULT_FSTAT, fstat64, (int fd, struct stat64 *st), (fd, st))
WRAP_INT(FAULT_FSTATAT, fstatat64,
         (int dir, const char *path, struct stat64 *st, int flags),
         (dir, path, st, flags))
WRAP_INT(FAULT_FSTATFS, fstatfs64, (int fd, struct statfs64 *st), (fd, st))
WRAP_INT(FAULT_FSTATVFS, fstatvfs64, (int fd, struct statvfs64 *st), (fd, st))
WRAP_INT(FAULT_FSYNC, fsync, (int fd), (fd))
WRAP_INT(FAULT_FTRUNCATE, ftruncate64, (int fd, off64_t len), (fd, len))
WRAP_INT(FAULT_FUTIMENS, futimens, (int fd, const struct timespec times[2]),
         (fd, times))
WRAP_INT(FAULT_GETRLIMIT, getrlimit64,
         (__rlimit_resource_t resource, struct rlimit64 *limit),
         (resource, limit))
WRAP_INT(FAULT_INOTIFY_ADD_WATCH, inotify_add_watch,
         (int fd, const char *path, uint32_t mask), (fd, path, mask))
WRAP_INT(FAULT_INOTIFY_INIT, inotify_init1, (int flags), (flags))
WRAP_INT(FAULT_IOCTL, ioctl, (int fd, unsigned long request, void *arg),
         (fd, request, arg))
WRAP_INT(FAULT_LSTAT, lstat64, (const char *path, struct stat64 *st),
         (path, st))
WRAP_INT(FAULT_MADVISE, madvise, (void *start, size_t len, int advice),
         (start, len, advice))
WRAP_INT(FAULT_MEMFD_CREATE, memfd_create, (const char *name, unsigned flags),
         (name, flags))
WRAP_INT(FAULT_MINCORE, mincore, (void *start, size_t len, unsigned char *vec),
         (start, len, vec))
WRAP_INT(FAULT_RENAMEAT, renameat,
         (int dir, const char *from, int to_dir, const char *to),
         (dir, from, to_dir, to))
WRAP_INT(FAULT_UNLINK, unlink, (const char *path), (path))
WRAP_INT(FAULT_UNLINKAT, unlinkat, (int dir, const char *path, int flags),
         (dir, path, flags))

/* Linux closes the descriptor all the same */
int __wrap_close(int fd)
{
    if (!fires(FAULT_CLOSE)) {
        return __real_close(fd);
    }
    if (faults.mode != FAULT_LIE) {
        int err = errno;

        __real_close(fd);
        errno = err;
    }
    return failed();
}

int __wrap_munmap(void *start, size_t len)
{
    if (!fires(FAULT_MUNMAP)) {
        return __real_munmap(start, len);
    }
    g_assert_cmpuint(faults.nr_kept, <, G_N_ELEMENTS(faults.kept));
    faults.kept[faults.nr_kept].start = start;
    faults.kept[faults.nr_kept++].len = len;
    return failed();
}

void *__wrap_mmap64(void *start, size_t len, int prot, int flags, int fd,
                    off64_t offset)
{
    return fires(FAULT_MMAP) ? MAP_FAILED
                             : __real_mmap64(start, len, prot, flags, fd,
                                             offset);
}

void *__wrap_mremap(void *old, size_t old_len, size_t len, int flags, ...)
{
    va_list ap;
    void *to;

    va_start(ap, flags);
    to = flags & MREMAP_FIXED ? va_arg(ap, void *) : NULL;
    va_end(ap);
    return fires(FAULT_MREMAP) ? MAP_FAILED
                               : __real_mremap(old, old_len, len, flags, to);
}

static int mode_of(int flags, va_list ap)
{
    return flags & O_CREAT ? va_arg(ap, int) : 0;
}

int __wrap_open64(const char *path, int flags, ...)
{
    va_list ap;
    int mode;

    va_start(ap, flags);
    mode = mode_of(flags, ap);
    va_end(ap);
    return fires(FAULT_OPEN) ? -1 : __real_open64(path, flags, mode);
}

int __wrap_openat64(int dir, const char *path, int flags, ...)
{
    va_list ap;
    int mode;

    va_start(ap, flags);
    mode = mode_of(flags, ap);
    va_end(ap);
    return fires(FAULT_OPENAT) ? -1 : __real_openat64(dir, path, flags, mode);
}

int __wrap_fcntl64(int fd, int command, ...)
{
    va_list ap;
    long arg;

    va_start(ap, command);
    arg = va_arg(ap, long);
    va_end(ap);
    return fires(FAULT_FCNTL) ? failed() : __real_fcntl64(fd, command, arg);
}

off64_t __wrap_lseek64(int fd, off64_t offset, int whence)
{
    return fires(FAULT_LSEEK) ? -1 : __real_lseek64(fd, offset, whence);
}

/* Half of @len for a short call, -1 for an error, otherwise @len */
static ssize_t allowed(FaultKind kind, size_t len)
{
    if (!fires(kind)) {
        return len;
    }
    return faults.err == FAULT_SHORT ? (ssize_t)(len + 1) / 2 : -1;
}

ssize_t __wrap_pread64(int fd, void *buf, size_t len, off64_t offset)
{
    ssize_t n = allowed(FAULT_PREAD, len);

    return n < 0 ? n : __real_pread64(fd, buf, n, offset);
}

ssize_t __wrap_pwrite64(int fd, const void *buf, size_t len, off64_t offset)
{
    ssize_t n = allowed(FAULT_PWRITE, len);

    if (n < 0 && faults.mode == FAULT_LIE) {
        return len;
    }
    return n < 0 ? n : __real_pwrite64(fd, buf, n, offset);
}

ssize_t __wrap_read(int fd, void *buf, size_t len)
{
    ssize_t n = allowed(FAULT_READ, len);

    return n < 0 ? n : __real_read(fd, buf, n);
}

ssize_t __wrap_readlink(const char *path, char *buf, size_t len)
{
    return fires(FAULT_READLINK) ? -1 : __real_readlink(path, buf, len);
}

void *__wrap_fdopendir(int fd)
{
    return fires(FAULT_FDOPENDIR) ? NULL : __real_fdopendir(fd);
}

void *__wrap_readdir64(void *dir)
{
    return fires(FAULT_READDIR) ? NULL : __real_readdir64(dir);
}

void *__wrap_realloc(void *old, size_t len)
{
    return fires(FAULT_REALLOC) ? NULL : __real_realloc(old, len);
}

void *__wrap_g_try_malloc0(gsize len)
{
    return fires(FAULT_TRY_MALLOC) ? NULL : __real_g_try_malloc0(len);
}

void *__wrap_g_try_malloc0_n(gsize nr, gsize len)
{
    return fires(FAULT_TRY_MALLOC) ? NULL : __real_g_try_malloc0_n(nr, len);
}

int __wrap_g_file_get_contents(const char *name, char **text, gsize *len,
                               void *err)
{
    return fires(FAULT_GET_CONTENTS)
           ? 0 : __real_g_file_get_contents(name, text, len, err);
}

long __wrap_syscall(long number, long a, long b, long c, long d, long e, long f)
{
    return fires(FAULT_SYSCALL) ? -1
                                : __real_syscall(number, a, b, c, d, e, f);
}
