/*
 * A VM state in memory
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qapi/error.h"
#include "qemu/iov.h"
#include "qemu/units.h"
#include "io/channel.h"
#include "system/ram-reset-compat.h"
#include "migration/qemu-file.h"
#include "migration/ram-reset/vmstate/memory.h"

/* QIOChannelBuffer would free its bytes when the file is closed */
#define TYPE_MEMORY_CHANNEL "ram-reset-memory-channel"
OBJECT_DECLARE_SIMPLE_TYPE(MemoryChannel, MEMORY_CHANNEL)

/* Devices have some 100 KiB; an array has less than 4 GiB */
#define MEMORY_MAX (1 * GiB)

struct MemoryChannel {
    QIOChannel parent_obj;

    GByteArray *bytes;
};

QEMUFile *vmstate_memory_create(GByteArray *bytes)
{
    g_autoptr(MemoryChannel) c =
        MEMORY_CHANNEL(object_new(TYPE_MEMORY_CHANNEL));

    c->bytes = g_byte_array_ref(bytes);
    return qemu_file_new_output(QIO_CHANNEL(c));
}

static ssize_t memory_writev(QIOChannel *ioc, const struct iovec *iov,
                             size_t niov, int *fds, size_t nfds, int flags,
                             Error **errp)
{
    GByteArray *bytes = MEMORY_CHANNEL(ioc)->bytes;
    size_t size = iov_size(iov, niov), at = bytes->len;

    if (size > MEMORY_MAX - at) {
        error_setg(errp, "the VM state has more than 1 GiB without RAM");
        return -1;
    }
    g_byte_array_set_size(bytes, at + size);
    iov_to_buf(iov, niov, 0, bytes->data + at, size);
    return size;
}

static int memory_close(QIOChannel *ioc, Error **errp)
{
    return 0;
}

static int memory_set_blocking(QIOChannel *ioc, bool enabled, Error **errp)
{
    return 0;
}

static void memory_finalize(Object *obj)
{
    g_byte_array_unref(MEMORY_CHANNEL(obj)->bytes);
}

static void memory_class_init(ObjectClass *oc, RamResetClassData *data)
{
    QIOChannelClass *ioc = QIO_CHANNEL_CLASS(oc);

    ioc->io_writev = memory_writev;
    ioc->io_close = memory_close;
    ioc->io_set_blocking = memory_set_blocking;
}

static const TypeInfo memory_channel_info = {
    .name = TYPE_MEMORY_CHANNEL,
    .parent = TYPE_QIO_CHANNEL,
    .instance_size = sizeof(MemoryChannel),
    .instance_finalize = memory_finalize,
    .class_init = memory_class_init,
};

static void register_types(void)
{
    type_register_static(&memory_channel_info);
}

type_init(register_types)
