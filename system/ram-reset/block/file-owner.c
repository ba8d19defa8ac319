/*
 * RAM reset: whose the file is that a RAM block is of
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qom/object.h"
#include "system/ram-reset/block/file-owner.h"
#include "system/ram-reset/prim/trusted-file.h"

/*
 * With a directory for mem-path=, QEMU makes a file in it by mkstemp(), removes
 * its name at once, and then opens it no more.  So only who has opened it in
 * between could have it, which its mode leaves to processes of the same user;
 * those could also open a memfd of QEMU's, by way of /proc.
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
    /* Where the kernel does not tell, it is as with a memfd */
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
    /* Say, what an ivshmem server has passed on */
    return "its file has come from elsewhere, where others may use it";
}
