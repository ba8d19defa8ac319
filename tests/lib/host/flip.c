/*
 * QEMU reads a byte of a disk image wrongly when a test wants it (LD_PRELOAD)
 *
 * The test shares a file with us, $RAM_RESET_FLIP.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#define _GNU_SOURCE
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>
#include "../real.h"

/* test_verify.py has the same */
typedef struct Control {
    _Atomic uint32_t flips;     /* how often it has been read wrongly */
    uint32_t bits;              /* 0: none is wrong */
    uint64_t longest;           /* read that is wrong, in bytes */
    uint64_t dev, ino, offset;
} Control;

static Control *control;

static void __attribute__((constructor)) begin(void)
{
    const char *name = getenv("RAM_RESET_FLIP");
    int fd = name ? open(name, O_RDWR | O_CLOEXEC) : -1;
    void *p;

    if (fd >= 0) {
        p = mmap(NULL, sizeof(Control), PROT_READ | PROT_WRITE, MAP_SHARED, fd,
                 0);
        close(fd);
        control = p != MAP_FAILED ? p : NULL;
    }
}

static bool is_disk(int fd)
{
    struct stat st;

    return !fstat(fd, &st) && st.st_dev == control->dev &&
           st.st_ino == control->ino;
}

/* @offset: in @fd, from where @iov has got @len bytes */
static void flip(int fd, const struct iovec *iov, int nr, off64_t offset,
                 ssize_t len)
{
    uint64_t at;

    if (!control || !control->bits || !is_disk(fd) || len <= 0 ||
        (uint64_t)len > control->longest ||
        control->offset < (uint64_t)offset ||
        (at = control->offset - offset) >= (uint64_t)len) {
        return;
    }
    for (int i = 0; i < nr; i++) {
        if (at < iov[i].iov_len) {
            ((uint8_t *)iov[i].iov_base)[at] ^= control->bits;
            control->flips++;
            return;
        }
        at -= iov[i].iov_len;
    }
}


ssize_t preadv64(int fd, const struct iovec *iov, int nr, off64_t offset)
{
    ssize_t n = REAL(preadv64)(fd, iov, nr, offset);

    flip(fd, iov, nr, offset, n);
    return n;
}

ssize_t pread64(int fd, void *buf, size_t len, off64_t offset)
{
    ssize_t n = REAL(pread64)(fd, buf, len, offset);
    struct iovec iov = { buf, len };

    flip(fd, &iov, 1, offset, n);
    return n;
}

ssize_t __pread64_chk(int fd, void *buf, size_t len, off64_t offset,
                      size_t room);

ssize_t __pread64_chk(int fd, void *buf, size_t len, off64_t offset,
                      size_t room)
{
    ssize_t n = REAL(__pread64_chk)(fd, buf, len, offset, room);
    struct iovec iov = { buf, len };

    flip(fd, &iov, 1, offset, n);
    return n;
}
