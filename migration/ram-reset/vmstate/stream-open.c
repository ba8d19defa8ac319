/*
 * Opening a VM state for reading
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "block/block.h"
#include "system/ram-reset-compat.h"
#include "migration/channel-block.h"
#include "migration/qemu-file.h"
#include "migration/ram-reset/vmstate/stream.h"

/* A QIOChannelBlock flushes the disk when it is closed, also after reads */
#define TYPE_STREAM_CHANNEL "ram-reset-stream-channel"

static int stream_close(QIOChannel *ioc, Error **errp)
{
    g_clear_pointer(&QIO_CHANNEL_BLOCK(ioc)->bs, bdrv_unref);
    return 0;
}

QEMUFile *ram_stream_open(BlockDriverState *bs)
{
    g_autoptr(QIOChannelBlock) plain = qio_channel_block_new(bs);
    g_autoptr(QIOChannelBlock) ioc = QIO_CHANNEL_BLOCK(
        object_new(TYPE_STREAM_CHANNEL));

    bdrv_ref(bs);
    ioc->bs = bs;
    QIO_CHANNEL(ioc)->features = QIO_CHANNEL(plain)->features;
    return qemu_file_new_input(QIO_CHANNEL(ioc));
}

static void stream_class_init(ObjectClass *oc, RamResetClassData *data)
{
    QIO_CHANNEL_CLASS(oc)->io_close = stream_close;
}

static const TypeInfo stream_channel_info = {
    .name = TYPE_STREAM_CHANNEL,
    .parent = TYPE_QIO_CHANNEL_BLOCK,
    .class_init = stream_class_init,
};

static void register_types(void)
{
    type_register_static(&stream_channel_info);
}

type_init(register_types)
