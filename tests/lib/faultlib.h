/*
 * Calls of QEMU that fail when a test wants them to: which, and how
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef RAM_RESET_FAULTLIB_H
#define RAM_RESET_FAULTLIB_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include "real.h"

/*
 * Calls on the disk image, which stock QEMU makes as well, are kinds of their
 * own.  The test knows them by these names.
 */
#define KINDS(X) \
    X(close) X(dup3) X(faccessat) X(fallocate) X(fcntl) X(fdopendir) X(flock) \
    X(fstat) X(fstatat) X(fstatfs) X(fstatvfs) X(fsync) X(ftruncate) \
    X(futimens) X(getrlimit) X(inotify) X(ioctl) X(lseek) X(madvise) \
    X(memfd_create) X(mincore) X(mkdir) X(mmap) X(mremap) X(munmap) X(open) \
    X(pread) X(pwrite) X(read) X(readdir) X(readlink) X(renameat) X(numa) \
    X(thread) X(unlink) X(userfaultfd) X(write) \
    X(disk_read) X(disk_write) X(disk_flush) X(disk_other)

typedef enum Kind {
#define X(name) KIND_##name,
    KINDS(X)
#undef X
    NR_KINDS,
    NONE
} Kind;

#define MAX_KINDS 64
#define NAME_LEN  16
#define SHORT     (-1)

typedef enum Mode { ONCE, FROM_THEN_ON, LIE } Mode;

/* test_faults.py has the same; @caller: an address in QEMU's program */
typedef struct Control {
    _Atomic uint32_t armed, kind, nth, mode;
    _Atomic int32_t err;
    _Atomic uint32_t fired;
    _Atomic uint64_t caller, disk_dev, disk_ino;
    _Atomic uint32_t calls[MAX_KINDS];
    char names[MAX_KINDS][NAME_LEN];
} Control;

/* No name of ours may take the place of one of QEMU's */
#pragma GCC visibility push(hidden)

extern Control *control;

/* Whether this call is not to do its work, and errno is set */
bool fires(Kind kind, const void *caller);

/* @kind, or what it is for a disk image; NONE for sockets, pipes, devices */
Kind kind_of(int fd, Kind kind, Kind disk);

#pragma GCC visibility pop

#endif
