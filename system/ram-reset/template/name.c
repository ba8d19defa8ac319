/*
 * Templates: names and locks of their files
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include <sys/file.h>
#include "system/ram-reset/template/name.h"

#define PREFIX     "ram-"
#define SUFFIX     ".template"
#define UNFINISHED ".template.new"

/* Tries to lock a file, a millisecond each */
#define MAX_TRIES 100

static char *make_name(const char *identity, const char *suffix)
{
    g_autofree char *hash = g_compute_checksum_for_string(G_CHECKSUM_SHA256,
                                                          identity, -1);

    return g_strdup_printf(PREFIX "%.32s%s", hash, suffix);
}

char *template_file_name(const char *identity)
{
    return make_name(identity, SUFFIX);
}

char *template_file_unfinished_name(const char *identity)
{
    return make_name(identity, UNFINISHED);
}

bool template_file_is_name(const char *name)
{
    return g_str_has_prefix(name, PREFIX) &&
           (g_str_has_suffix(name, SUFFIX) ||
            g_str_has_suffix(name, UNFINISHED));
}

bool template_file_is_unfinished_name(const char *name)
{
    return g_str_has_suffix(name, UNFINISHED);
}

bool template_file_is_called(int dir, const char *name, int fd)
{
    struct stat by_name, by_fd;

    return fstatat(dir, name, &by_name, AT_SYMLINK_NOFOLLOW) == 0 &&
           fstat(fd, &by_fd) == 0 && by_name.st_ino == by_fd.st_ino &&
           by_name.st_dev == by_fd.st_dev;
}

bool template_file_lock(int fd)
{
    for (unsigned tries = 0; flock(fd, LOCK_SH | LOCK_NB) < 0; tries++) {
        if (errno != EWOULDBLOCK || tries == MAX_TRIES) {
            return false;
        }
        g_usleep(1000);
    }
    return true;
}
