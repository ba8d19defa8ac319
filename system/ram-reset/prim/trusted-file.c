/*
 * prim: check which users may have written to a file or directory
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "system/ram-reset/prim/trusted-file.h"

bool trusted_file_is_ours(const struct stat *st)
{
    return st->st_uid == geteuid();
}

static const char *kind_refusal(const struct stat *st, unsigned rules)
{
    if (rules & TRUST_DIRECTORY) {
        return S_ISDIR(st->st_mode) ? NULL : "it is not a directory";
    }
    return S_ISREG(st->st_mode) ? NULL : "it is not a regular file";
}

static char *mode_refusal(const struct stat *st, unsigned rules)
{
    unsigned others = rules & TRUST_READERS ? 022 : 077;

    if (rules & TRUST_ANY_MODE || !(st->st_mode & others)) {
        return NULL;
    }
    if (!(rules & TRUST_DIRECTORY)) {
        return g_strdup_printf("its mode is %04o, not 0600, so that others may "
                               "use it", st->st_mode & 07777);
    }
    if (rules & TRUST_STICKY && st->st_mode & S_ISVTX) {
        return NULL;
    }
    return g_strdup_printf("its mode is %04o, so that others may replace files "
                           "in it", st->st_mode & 07777);
}

char *trusted_file_refusal(const struct stat *st, unsigned rules)
{
    const char *kind = kind_refusal(st, rules);
    char *mode;

    if (kind) {
        return g_strdup(kind);
    }
    if (!trusted_file_is_ours(st) && !(rules & TRUST_ROOT && st->st_uid == 0)) {
        return g_strdup_printf("it belongs to user %u, not to %u that QEMU "
                               "runs as", (unsigned)st->st_uid,
                               (unsigned)geteuid());
    }
    mode = mode_refusal(st, rules);
    if (mode) {
        return mode;
    }
    if (st->st_nlink > 1 && !(rules & (TRUST_DIRECTORY | TRUST_LINKS))) {
        return g_strdup("it has more than one name");
    }
    return NULL;
}

char *trusted_file_fd_refusal(int fd, unsigned rules)
{
    struct stat st;

    return fstat(fd, &st) < 0 ? g_strdup(g_strerror(errno))
                              : trusted_file_refusal(&st, rules);
}

char *trusted_dir_refusal(int dir)
{
    return trusted_file_fd_refusal(dir, TRUST_DIRECTORY | TRUST_ROOT |
                                        TRUST_READERS | TRUST_STICKY);
}

int trusted_file_open(int dir, const char *path, int flags)
{
    return openat(dir, path, flags | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK, 0600);
}

const char *trusted_file_open_error(int err)
{
    return err == ELOOP ? "it is a symbolic link" : g_strerror(err);
}

bool trusted_file_is_ours_alone(int fd, bool hold)
{
    /*
     * A process that opens the file during the lease waits, and the kernel
     * signals us: SIGURG is ignored by default, SIGIO is not.
     */
    if (fcntl(fd, F_SETSIG, SIGURG) < 0 ||
        fcntl(fd, F_SETLEASE, F_WRLCK) < 0) {
        return false;
    }
    /* Without this QEMU would wait for itself when it opens the file */
    return hold || fcntl(fd, F_SETLEASE, F_UNLCK) == 0;
}
