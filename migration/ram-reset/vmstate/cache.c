/*
 * A cache of the VM state of a snapshot, without RAM
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qapi/error.h"
#include "qemu/iov.h"
#include "qemu/units.h"
#include "block/block.h"
#include "io/channel.h"
#include "system/ram-reset-compat.h"
#include "migration/qemu-file.h"
#include "migration/ram-reset/vmstate/cache.h"
#include "migration/ram-reset/vmstate/stream.h"

/*
 * Size of the first part: the first RAM section lists the blocks, and QEMUFile
 * fills a buffer behind it before RAM is skipped
 */
#define CACHE_HEAD  (3 * RAM_STREAM_BUFFER)
/* Devices have a few 100 KiB; a larger VM state is not worth a cache */
#define CACHE_MAX   (64 * MiB)

typedef struct VMStateRange {
    uint64_t start, end;
} VMStateRange;

#define TYPE_CACHE_CHANNEL "ram-reset-cache-channel"
OBJECT_DECLARE_SIMPLE_TYPE(CacheChannel, CACHE_CHANNEL)

struct CacheChannel {
    QIOChannel parent_obj;

    BlockDriverState *bs;       /* NULL: all of the VM state is cached */
    uint64_t offset;
    VMStateCache cache;         /* has its own references */
};

void vmstate_cache_drop(VMStateCache *c)
{
    for (int i = 0; i < ARRAY_SIZE(c->parts); i++) {
        g_clear_pointer(&c->parts[i].bytes, g_bytes_unref);
    }
    g_clear_pointer(&c->skips, g_array_unref);
}

static bool cache_read_part(BlockDriverState *bs, VMStatePart *part,
                            uint64_t start, uint64_t end)
{
    g_autofree uint8_t *buf = g_try_malloc(end - start);

    if (!buf || bdrv_load_vmstate(bs, buf, start, end - start) < 0) {
        return false;
    }
    part->start = start;
    part->bytes = g_bytes_new_take(g_steal_pointer(&buf), end - start);
    return true;
}

static void cache_use_memory(VMStateCache *c, GBytes *memory, uint64_t ram_end)
{
    uint64_t size = g_bytes_get_size(memory);

    c->parts[0].bytes = g_bytes_new_from_bytes(memory, 0, ram_end);
    c->parts[1].start = ram_end;
    c->parts[1].bytes = g_bytes_new_from_bytes(memory, ram_end, size - ram_end);
    c->skips = g_array_new(false, false, sizeof(VMStateRange));
}

static void cache_fill(VMStateCache *c, BlockDriverState *bs, uint64_t ram_end,
                       uint64_t size)
{
    if (ram_end >= size || size - ram_end > CACHE_MAX ||
        !cache_read_part(bs, &c->parts[0], 0, MIN(CACHE_HEAD, ram_end)) ||
        !cache_read_part(bs, &c->parts[1], ram_end, size)) {
        vmstate_cache_drop(c);
    } else {
        c->skips = g_array_new(false, false, sizeof(VMStateRange));
    }
}

QEMUFile *vmstate_cache_open(VMStateCache *c, GBytes *memory,
                             BlockDriverState *bs, uint64_t ram_end,
                             uint64_t size)
{
    g_autoptr(CacheChannel) channel = NULL;

    if (!c->skips && memory) {
        cache_use_memory(c, memory, ram_end);
    } else if (!c->skips) {
        cache_fill(c, bs, ram_end, size);
    }
    channel = CACHE_CHANNEL(object_new(TYPE_CACHE_CHANNEL));
    if (!memory) {
        channel->bs = bs;
        bdrv_ref(bs);
    }
    if (c->skips) {
        channel->cache = *c;
        g_array_ref(c->skips);
        for (int i = 0; i < ARRAY_SIZE(c->parts); i++) {
            g_bytes_ref(c->parts[i].bytes);
        }
    }
    return qemu_file_new_input(QIO_CHANNEL(channel));
}

const uint8_t *vmstate_cache_devices(const VMStateCache *c, size_t *size)
{
    return c->skips ? g_bytes_get_data(c->parts[1].bytes, size) : NULL;
}

void vmstate_cache_skip(VMStateCache *c, uint64_t start, uint64_t end)
{
    VMStateRange range = { start, end };

    g_array_append_val(c->skips, range);
}

void vmstate_cache_clear_skips(VMStateCache *c)
{
    if (c->skips) {
        g_array_set_size(c->skips, 0);
    }
}

/*
 * Moves *@at behind the skipped ranges at that position of the second part.
 * Returns the number of bytes up to the next skipped range.
 */
static uint64_t cache_next_range(const GArray *skips, uint64_t *at,
                                 uint64_t size)
{
    uint64_t end = size;

    for (int i = 0; i < skips->len; i++) {
        VMStateRange *range = &g_array_index(skips, VMStateRange, i);

        if (*at >= range->start && *at < range->end) {
            *at = range->end;
            return cache_next_range(skips, at, size);
        }
        if (range->start > *at) {
            end = MIN(end, range->start);
        }
    }
    return end - *at;
}

static ssize_t cache_readv(QIOChannel *ioc, const struct iovec *iov,
                           size_t niov, int **fds, size_t *nfds, int flags,
                           Error **errp)
{
    CacheChannel *c = CACHE_CHANNEL(ioc);
    QEMUIOVector qiov;
    int ret;

    for (int i = 0; i < ARRAY_SIZE(c->cache.parts); i++) {
        const VMStatePart *part = &c->cache.parts[i];
        uint64_t at = c->offset - part->start;
        size_t size = 0;
        const uint8_t *data = part->bytes
                              ? g_bytes_get_data(part->bytes, &size) : NULL;

        if (c->offset >= part->start && at < size) {
            size = i ? cache_next_range(c->cache.skips, &at, size) : size - at;
            size = iov_from_buf(iov, niov, 0, data + at, size);
            c->offset = part->start + at + size;
            return size;
        }
    }
    if (!c->bs) {
        /* An image has zeros behind the VM state, too, and readers rely on it */
        size_t size = iov_memset(iov, niov, 0, 0, iov_size(iov, niov));

        c->offset += size;
        return size;
    }
    qemu_iovec_init_external(&qiov, (struct iovec *)iov, niov);
    ret = bdrv_readv_vmstate(c->bs, &qiov, c->offset);
    if (ret < 0) {
        error_setg_errno(errp, -ret, "The VM state cannot be read");
        return -1;
    }
    c->offset += qiov.size;
    return qiov.size;
}

static off_t cache_seek(QIOChannel *ioc, off_t offset, int whence, Error **errp)
{
    CacheChannel *c = CACHE_CHANNEL(ioc);

    assert(whence != SEEK_END);
    c->offset = whence == SEEK_CUR ? c->offset + offset : offset;
    return c->offset;
}

static int cache_close(QIOChannel *ioc, Error **errp)
{
    return 0;
}

static int cache_set_blocking(QIOChannel *ioc, bool enabled, Error **errp)
{
    assert(enabled);
    return 0;
}

static void cache_finalize(Object *obj)
{
    CacheChannel *c = CACHE_CHANNEL(obj);

    vmstate_cache_drop(&c->cache);
    bdrv_unref(c->bs);
}

static void cache_class_init(ObjectClass *oc, RamResetClassData *data)
{
    QIOChannelClass *ioc = QIO_CHANNEL_CLASS(oc);

    ioc->io_readv = cache_readv;
    ioc->io_seek = cache_seek;
    ioc->io_close = cache_close;
    ioc->io_set_blocking = cache_set_blocking;
}

static const TypeInfo cache_channel_info = {
    .name = TYPE_CACHE_CHANNEL,
    .parent = TYPE_QIO_CHANNEL,
    .instance_size = sizeof(CacheChannel),
    .instance_finalize = cache_finalize,
    .class_init = cache_class_init,
};

static void register_types(void)
{
    type_register_static(&cache_channel_info);
}

type_init(register_types)
