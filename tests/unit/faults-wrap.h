/*
 * Calls that the linker leads to faults-wrap.c; scripts/find-tests reads them
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef RAM_RESET_TEST_FAULTS_WRAP_H
#define RAM_RESET_TEST_FAULTS_WRAP_H

int __real_close(int fd);
int __wrap_close(int fd);
int __real_dup3(int from, int to, int flags);
int __wrap_dup3(int from, int to, int flags);
int __real_faccessat(int dir, const char *path, int mode, int flags);
int __wrap_faccessat(int dir, const char *path, int mode, int flags);
int __real_fallocate64(int fd, int mode, off64_t offset, off64_t len);
int __wrap_fallocate64(int fd, int mode, off64_t offset, off64_t len);
int __real_fcntl64(int fd, int command, ...);
int __wrap_fcntl64(int fd, int command, ...);
void *__real_fdopendir(int fd);
void *__wrap_fdopendir(int fd);
int __real_flock(int fd, int operation);
int __wrap_flock(int fd, int operation);
int __real_fstat64(int fd, struct stat64 *st);
int __wrap_fstat64(int fd, struct stat64 *st);
int __real_fstatat64(int dir, const char *path, struct stat64 *st, int flags);
int __wrap_fstatat64(int dir, const char *path, struct stat64 *st, int flags);
int __real_fstatfs64(int fd, struct statfs64 *st);
int __wrap_fstatfs64(int fd, struct statfs64 *st);
int __real_fstatvfs64(int fd, struct statvfs64 *st);
int __wrap_fstatvfs64(int fd, struct statvfs64 *st);
int __real_fsync(int fd);
int __wrap_fsync(int fd);
int __real_ftruncate64(int fd, off64_t len);
int __wrap_ftruncate64(int fd, off64_t len);
int __real_futimens(int fd, const struct timespec times[2]);
int __wrap_futimens(int fd, const struct timespec times[2]);
int __real_getrlimit64(__rlimit_resource_t resource, struct rlimit64 *limit);
int __wrap_getrlimit64(__rlimit_resource_t resource, struct rlimit64 *limit);
int __real_g_file_get_contents(const char *name, char **text, gsize *len,
                               void *err);
int __wrap_g_file_get_contents(const char *name, char **text, gsize *len,
                               void *err);
void *__real_g_try_malloc0(gsize len);
void *__wrap_g_try_malloc0(gsize len);
void *__real_g_try_malloc0_n(gsize nr, gsize len);
void *__wrap_g_try_malloc0_n(gsize nr, gsize len);
int __real_inotify_add_watch(int fd, const char *path, uint32_t mask);
int __wrap_inotify_add_watch(int fd, const char *path, uint32_t mask);
int __real_inotify_init1(int flags);
int __wrap_inotify_init1(int flags);
int __real_ioctl(int fd, unsigned long request, void *arg);
int __wrap_ioctl(int fd, unsigned long request, void *arg);
off64_t __real_lseek64(int fd, off64_t offset, int whence);
off64_t __wrap_lseek64(int fd, off64_t offset, int whence);
int __real_lstat64(const char *path, struct stat64 *st);
int __wrap_lstat64(const char *path, struct stat64 *st);
int __real_madvise(void *start, size_t len, int advice);
int __wrap_madvise(void *start, size_t len, int advice);
int __real_memfd_create(const char *name, unsigned flags);
int __wrap_memfd_create(const char *name, unsigned flags);
int __real_mincore(void *start, size_t len, unsigned char *vec);
int __wrap_mincore(void *start, size_t len, unsigned char *vec);
void *__real_mmap64(void *start, size_t len, int prot, int flags, int fd,
                    off64_t offset);
void *__wrap_mmap64(void *start, size_t len, int prot, int flags, int fd,
                    off64_t offset);
void *__real_mremap(void *old, size_t old_len, size_t len, int flags, ...);
void *__wrap_mremap(void *old, size_t old_len, size_t len, int flags, ...);
int __real_munmap(void *start, size_t len);
int __wrap_munmap(void *start, size_t len);
int __real_open64(const char *path, int flags, ...);
int __wrap_open64(const char *path, int flags, ...);
int __real_openat64(int dir, const char *path, int flags, ...);
int __wrap_openat64(int dir, const char *path, int flags, ...);
ssize_t __real_pread64(int fd, void *buf, size_t len, off64_t offset);
ssize_t __wrap_pread64(int fd, void *buf, size_t len, off64_t offset);
ssize_t __real_pwrite64(int fd, const void *buf, size_t len, off64_t offset);
ssize_t __wrap_pwrite64(int fd, const void *buf, size_t len, off64_t offset);
ssize_t __real_read(int fd, void *buf, size_t len);
ssize_t __wrap_read(int fd, void *buf, size_t len);
void *__real_readdir64(void *dir);
void *__wrap_readdir64(void *dir);
ssize_t __real_readlink(const char *path, char *buf, size_t len);
ssize_t __wrap_readlink(const char *path, char *buf, size_t len);
void *__real_realloc(void *old, size_t len);
void *__wrap_realloc(void *old, size_t len);
int __real_renameat(int dir, const char *from, int to_dir, const char *to);
int __wrap_renameat(int dir, const char *from, int to_dir, const char *to);
long __real_syscall(long number, long a, long b, long c, long d, long e,
                    long f);
long __wrap_syscall(long number, long a, long b, long c, long d, long e,
                    long f);
int __real_unlink(const char *path);
int __wrap_unlink(const char *path);
int __real_unlinkat(int dir, const char *path, int flags);
int __wrap_unlinkat(int dir, const char *path, int flags);

#endif
