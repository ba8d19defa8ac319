/*
 * prim: turn the file size limit from a signal into an error
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "system/ram-reset/prim/internal.h"

static bool is_pending(void)
{
    sigset_t pending;

    return sigpending(&pending) == 0 && sigismember(&pending, SIGXFSZ) == 1;
}

static sigset_t only_xfsz(void)
{
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGXFSZ);
    return set;
}

void prim_limit_begin(PrimLimit *limit)
{
    sigset_t xfsz = only_xfsz();

    limit->pending = is_pending();
    pthread_sigmask(SIG_BLOCK, &xfsz, &limit->before);
}

/* The kernel sends SIGXFSZ to the thread that made the call */
void prim_limit_end(const PrimLimit *limit)
{
    const struct timespec at_once = { 0 };
    sigset_t xfsz = only_xfsz();
    int err = errno;

    if (!limit->pending && is_pending()) {
        sigtimedwait(&xfsz, NULL, &at_once);
    }
    pthread_sigmask(SIG_SETMASK, &limit->before, NULL);
    errno = err;
}
