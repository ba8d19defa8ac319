/*
 * Reading and writing all of a range of a file
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "system/ram-reset/prim/prim.h"

size_t prim_read_all(int fd, void *buf, size_t len, uint64_t offset)
{
    size_t done = 0;

    while (done < len) {
        ssize_t n = pread(fd, (char *)buf + done, len - done, offset + done);

        if (n > 0) {
            done += n;
        } else if (!n || errno != EINTR) {
            errno = n ? errno : EIO;
            break;
        }
    }
    return done;
}

size_t prim_write_all(int fd, const void *buf, size_t len, uint64_t offset)
{
    size_t done = 0;

    while (done < len) {
        ssize_t n = pwrite(fd, (const char *)buf + done, len - done,
                           offset + done);

        if (n > 0) {
            done += n;
        } else if (!n || errno != EINTR) {
            errno = n ? errno : EIO;
            break;
        }
    }
    return done;
}
