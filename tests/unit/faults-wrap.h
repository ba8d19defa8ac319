/*
 * Calls that the linker leads to faults-wrap.c; meson.build has the same list
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef RAM_RESET_TEST_FAULTS_WRAP_H
#define RAM_RESET_TEST_FAULTS_WRAP_H

#define WRAPPED(type, name, ...) \
    type __real_##name(__VA_ARGS__); \
    type __wrap_##name(__VA_ARGS__)

WRAPPED(int, close, int fd);
WRAPPED(int, dup3, int from, int to, int flags);
WRAPPED(int, faccessat, int dir, const char *path, int mode, int flags);
WRAPPED(int, fallocate64, int fd, int mode, off64_t offset, off64_t len);
WRAPPED(int, fcntl64, int fd, int command, ...);
WRAPPED(void *, fdopendir, int fd);
WRAPPED(int, flock, int fd, int operation);
WRAPPED(int, fstat64, int fd, struct stat64 *st);
WRAPPED(int, fstatat64, int dir, const char *path, struct stat64 *st,
        int flags);
WRAPPED(int, fstatfs64, int fd, struct statfs64 *st);
WRAPPED(int, fstatvfs64, int fd, struct statvfs64 *st);
WRAPPED(int, fsync, int fd);
WRAPPED(int, ftruncate64, int fd, off64_t len);
WRAPPED(int, futimens, int fd, const struct timespec times[2]);
WRAPPED(int, getrlimit64, __rlimit_resource_t resource, struct rlimit64 *limit);
WRAPPED(int, g_file_get_contents, const char *name, char **text, gsize *len,
        void *err);
WRAPPED(void *, g_try_malloc0, gsize len);
WRAPPED(void *, g_try_malloc0_n, gsize nr, gsize len);
WRAPPED(int, inotify_add_watch, int fd, const char *path, uint32_t mask);
WRAPPED(int, inotify_init1, int flags);
WRAPPED(int, ioctl, int fd, unsigned long request, void *arg);
WRAPPED(off64_t, lseek64, int fd, off64_t offset, int whence);
WRAPPED(int, lstat64, const char *path, struct stat64 *st);
WRAPPED(int, madvise, void *start, size_t len, int advice);
WRAPPED(int, memfd_create, const char *name, unsigned flags);
WRAPPED(int, mincore, void *start, size_t len, unsigned char *vec);
WRAPPED(void *, mmap64, void *start, size_t len, int prot, int flags, int fd,
        off64_t offset);
WRAPPED(void *, mremap, void *old, size_t old_len, size_t len, int flags, ...);
WRAPPED(int, munmap, void *start, size_t len);
WRAPPED(int, open64, const char *path, int flags, ...);
WRAPPED(int, openat64, int dir, const char *path, int flags, ...);
WRAPPED(ssize_t, pread64, int fd, void *buf, size_t len, off64_t offset);
WRAPPED(ssize_t, pwrite64, int fd, const void *buf, size_t len, off64_t offset);
WRAPPED(ssize_t, read, int fd, void *buf, size_t len);
WRAPPED(void *, readdir64, void *dir);
WRAPPED(ssize_t, readlink, const char *path, char *buf, size_t len);
WRAPPED(void *, realloc, void *old, size_t len);
WRAPPED(int, renameat, int dir, const char *from, int to_dir, const char *to);
WRAPPED(long, syscall, long number, long a, long b, long c, long d, long e,
        long f);
WRAPPED(int, unlink, const char *path);
WRAPPED(int, unlinkat, int dir, const char *path, int flags);

#endif
