/*
 * RAM reset: find out whether other processes may have a RAM block's file
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qom/object.h"
#include "system/ram-reset/block/file-owner.h"
#include "system/ram-reset/prim/trusted-file.h"

/*
 * With a directory for mem-path=, QEMU makes a file in it by mkstemp(), removes
 * its name at once, and never opens it again.  So only a process that has
 * opened it in between can have it.  The file's mode limits this to processes
 * of the same user, which could also open a memfd of QEMU's through /proc.
 */
static bool has_been_made_without_name(Object *backend, const struct stat *file)
{
    g_autofree char *path = object_property_get_str(backend, "mem-path", NULL);
    struct stat dir;

    return file->st_nlink == 0 && !(file->st_mode & 077) &&
           path && stat(path, &dir) == 0 && S_ISDIR(dir.st_mode);
}

static const char *named_file_refusal(Object *backend, int fd)
{
    struct stat file;

    if (fstat(fd, &file) < 0 || !has_been_made_without_name(backend, &file)) {
        return "its file has or had a name, by which others may use it; give "
               "mem-path= a directory, for QEMU to make a file without a name "
               "there, or use memory-backend-memfd";
    }
    /* If this cannot be found out, treat the file like a memfd */
    if (!trusted_file_is_ours_alone(fd, false) && errno == EAGAIN) {
        return "another process has opened its file";
    }
    return NULL;
}

const char *ram_reset_file_refusal(Object *backend, int fd)
{
    if (fd < 0 ||
        object_dynamic_cast(backend, "memory-backend-memfd") ||
        object_dynamic_cast(backend, "memory-backend-ram")) {
        return NULL;
    }
    if (object_dynamic_cast(backend, "memory-backend-file")) {
        return named_file_refusal(backend, fd);
    }
    /* For instance, a file received from an ivshmem server */
    return "its file was received from another process, which may use it";
}
