/*
 * prim: find the pages that have been written to
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "system/ram-reset/prim/internal.h"
#include <sys/syscall.h>
#include <linux/userfaultfd.h>
#include "system/ram-reset/prim/watch.h"

/*
 * Documentation/admin-guide/mm/userfaultfd.rst and pagemap.rst; the headers of
 * some libcs lack these.  USER_MODE_ONLY needs no privilege, and is enough: no
 * fault has to be handled, not even one of the kernel.
 */
#define USER_MODE_ONLY      1
#define WP_UNPOPULATED      (UINT64_C(1) << 13)
#define WP_ASYNC            (UINT64_C(1) << 15)

#define SCAN_WP_MATCHING    (1 << 0)
#define SCAN_CHECK_WPASYNC  (1 << 1)
#define SCAN_WRITTEN        (1 << 1)

int prim_watch_open(PrimWatch *w)
{
    struct uffdio_api api = {
        .api = UFFD_API,
        .features = WP_UNPOPULATED | WP_ASYNC,
    };
    int ret;

    w->uffd = syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | USER_MODE_ONLY);
    if (w->uffd < 0) {
        return -errno;
    }
    w->pagemap = ioctl(w->uffd, UFFDIO_API, &api) < 0
                 ? -1 : open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    if (w->pagemap < 0) {
        ret = -errno;
        close(w->uffd);
        return ret;
    }
    return 0;
}

void prim_watch_close(PrimWatch *w)
{
    close(w->pagemap);
    close(w->uffd);
}

static PrimScanArg scan_arg(uintptr_t start, uintptr_t end)
{
    return (PrimScanArg) {
        .size = sizeof(PrimScanArg),
        .start = start,
        .end = end,
        .flags = SCAN_CHECK_WPASYNC,
        .category_mask = SCAN_WRITTEN,
        .return_mask = SCAN_WRITTEN,
    };
}

int prim_watch_restart(const PrimWatch *w, void *host, uint64_t len)
{
    PrimScanArg arg = scan_arg((uintptr_t)host, (uintptr_t)host + len);

    arg.flags |= SCAN_WP_MATCHING;
    arg.return_mask = 0;
    return ioctl(w->pagemap, PRIM_SCAN_IOCTL, &arg) < 0 ? -errno : 0;
}

int prim_watch_add(const PrimWatch *w, void *host, uint64_t len)
{
    struct uffdio_register reg = {
        .range = { .start = (uintptr_t)host, .len = len },
        .mode = UFFDIO_REGISTER_MODE_WP,
    };

    return ioctl(w->uffd, UFFDIO_REGISTER, &reg) < 0
           ? -errno : prim_watch_restart(w, host, len);
}

/* Fetch more ranges; 0 or -errno */
static int watch_scan(const PrimWatch *w, PrimWatchIter *it, uintptr_t to)
{
    const unsigned room = sizeof(it->ranges) / sizeof(it->ranges[0]);
    PrimScanArg arg = scan_arg(it->next, to);
    int n;

    arg.vec = (uintptr_t)it->ranges;
    arg.vec_len = room;
    n = ioctl(w->pagemap, PRIM_SCAN_IOCTL, &arg);
    if (n < 0) {
        return -errno;
    }
    it->at = 0;
    it->nr = n;
    /* Linux 6.18 may have walk_end lie below the last range */
    it->next = it->nr < room ? to : it->ranges[n - 1].end;
    return 0;
}

int prim_watch_next(const PrimWatch *w, PrimWatchIter *it, uintptr_t to,
                    uintptr_t *start, uintptr_t *end)
{
    while (it->at == it->nr) {
        int ret;

        if (it->next >= to) {
            return 0;
        }
        ret = watch_scan(w, it, to);
        if (ret < 0) {
            return ret;
        }
    }
    *start = it->ranges[it->at].start;
    *end = it->ranges[it->at].end;
    it->at++;
    return 1;
}
