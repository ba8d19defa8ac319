/*
 * QEMU ends at the Nth call that changes a disk image (LD_PRELOAD)
 *
 * The test shares a file with us, $RAM_RESET_KILL.  A call counts if its file
 * is called *.qcow2, and if the test has armed us.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>
#include "../real.h"

typedef enum Kind { WRITE, FLUSH, TRUNCATE, NR_KINDS } Kind;

/* kills.py has the same */
typedef struct Control {
    _Atomic uint32_t armed, nth, count, kind;
} Control;

static Control *control;

static void __attribute__((constructor)) begin(void)
{
    const char *name = getenv("RAM_RESET_KILL");
    int fd = name ? open(name, O_RDWR | O_CLOEXEC) : -1;
    void *p;

    if (fd < 0) {
        return;
    }
    p = mmap(NULL, sizeof(Control), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (p == MAP_FAILED) {
        abort();
    }
    control = p;
}

static bool is_image(int fd)
{
    char path[64], to[4096];
    ssize_t n;

    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    n = readlink(path, to, sizeof(to));
    return n > 6 && !memcmp(to + n - 6, ".qcow2", 6);
}

/* Whether this is the call at which QEMU ends */
static bool is_last(int fd, Kind kind)
{
    if (!control || !control->armed || !is_image(fd) ||
        ++control->count != control->nth) {
        return false;
    }
    control->kind = kind;
    return true;
}

static void end(void)
{
    kill(getpid(), SIGKILL);
    for (;;) {
        pause();
    }
}

ssize_t pwrite64(int fd, const void *buf, size_t len, off64_t offset)
{
    if (is_last(fd, WRITE)) {
        end();
    }
    return REAL(pwrite64)(fd, buf, len, offset);
}

ssize_t pwritev64(int fd, const struct iovec *iov, int nr, off64_t offset)
{
    if (is_last(fd, WRITE)) {
        end();
    }
    return REAL(pwritev64)(fd, iov, nr, offset);
}

int fdatasync(int fd)
{
    if (is_last(fd, FLUSH)) {
        end();
    }
    return REAL(fdatasync)(fd);
}

int ftruncate64(int fd, off64_t len)
{
    if (is_last(fd, TRUNCATE)) {
        end();
    }
    return REAL(ftruncate64)(fd, len);
}

int fallocate64(int fd, int mode, off64_t offset, off64_t len)
{
    if (is_last(fd, TRUNCATE)) {
        end();
    }
    return REAL(fallocate64)(fd, mode, offset, len);
}
