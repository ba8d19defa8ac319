/*
 * Mapping the file of an incoming migration
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qapi/error.h"
#include "io/channel-file.h"
#include "system/ram-reset-compat.h"
#include "system/ram-reset-template.h"
#include "migration/qemu-file.h"
#include "migration/ram-reset.h"
#include "system/ram-reset/trace.h"

/* A description of its own: the migration reads on from its position */
static int incoming_reopen(QIOChannelFile *file)
{
    g_autofree char *path = g_strdup_printf("/proc/self/fd/%d", file->fd);

    return open(path, O_RDONLY | O_CLOEXEC);
}

static bool incoming_map(QIOChannelFile *file, RAMBlock *rb,
                         const unsigned long *stored, Error **errp)
{
    int fd = incoming_reopen(file);
    bool ok;

    if (fd < 0) {
        error_setg_errno(errp, errno, "it cannot be opened again");
        return false;
    }
    ok = ram_reset_map_file(rb, fd, rb->pages_offset, stored, errp);
    close(fd);
    return ok;
}

bool ram_reset_map_incoming(QEMUFile *f, RAMBlock *rb, ram_addr_t len,
                            const unsigned long *stored)
{
    QIOChannelFile *file = (QIOChannelFile *)object_dynamic_cast(
        OBJECT(qemu_file_get_ioc(f)), TYPE_QIO_CHANNEL_FILE);
    Error *err = NULL;
    bool ok;

    if (!file || !ram_reset_enabled() || len != rb->used_length) {
        return false;
    }
    ok = incoming_map(file, rb, stored, &err);
    trace_ram_reset_map_incoming(rb->idstr, ok,
                                 err ? error_get_pretty(err) : "");
    error_free(err);
    return ok;
}
