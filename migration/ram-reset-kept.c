/*
 * What a VM state has beside RAM, kept in memory
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
#include "qemu-file.h"
#include "migration/ram-reset-identity.h"
#include "migration/ram-reset-kept.h"
#include "migration/ram-reset-stream.h"

/*
 * What is read of the beginning: RAM's first section has a list of the blocks,
 * and behind it a buffer is filled before RAM is skipped
 */
#define HEAD        (3 * RAM_STREAM_BUFFER)
/* Devices have a few 100 KiB; with more, reading is not what a load costs */
#define MOST        (64 * MiB)

typedef struct KeptPart {
    uint64_t start;             /* in the VM state */
    GBytes *bytes;
} KeptPart;

typedef struct KeptRange {
    uint64_t start, end;
} KeptRange;

/* BQL.  Of one snapshot */
static struct {
    char *key;                  /* NULL if nothing is kept */
    KeptPart parts[2];
    GArray *left_out;           /* KeptRange of the second part; may be NULL */
} kept;

#define TYPE_KEPT_CHANNEL "ram-reset-kept-channel"
OBJECT_DECLARE_SIMPLE_TYPE(KeptChannel, KEPT_CHANNEL)

struct KeptChannel {
    QIOChannel parent_obj;

    BlockDriverState *bs;
    uint64_t offset;
    KeptPart parts[2];          /* referenced */
};

static void clear_parts(KeptPart *parts)
{
    for (int i = 0; i < ARRAY_SIZE(kept.parts); i++) {
        g_clear_pointer(&parts[i].bytes, g_bytes_unref);
    }
}

void ram_reset_kept_forget(void)
{
    g_clear_pointer(&kept.key, g_free);
    clear_parts(kept.parts);
}

/* From @start to @end of the VM state */
static bool keep(BlockDriverState *bs, KeptPart *part, uint64_t start,
                 uint64_t end)
{
    g_autofree uint8_t *buf = g_try_malloc(end - start);

    if (!buf || bdrv_load_vmstate(bs, buf, start, end - start) < 0) {
        return false;
    }
    part->start = start;
    part->bytes = g_bytes_new_take(g_steal_pointer(&buf), end - start);
    return true;
}

/* Takes @key */
static void keep_all(BlockDriverState *bs, char *key, uint64_t ram_end,
                     uint64_t size)
{
    uint64_t head = MIN(HEAD, ram_end);

    ram_reset_kept_forget();
    if (ram_end < size && size - ram_end <= MOST &&
        keep(bs, &kept.parts[0], 0, head) &&
        keep(bs, &kept.parts[1], ram_end, size)) {
        kept.key = key;
    } else {
        clear_parts(kept.parts);
        g_free(key);
    }
}

QEMUFile *ram_reset_kept_open(BlockDriverState *bs, const QEMUSnapshotInfo *sn,
                              int64_t ram_end)
{
    g_autoptr(KeptChannel) c = NULL;
    g_autofree char *key = ram_reset_snapshot_key(bs, sn);

    if (ram_end <= 0) {
        ram_reset_kept_forget();
        return ram_stream_open(bs);
    }
    c = KEPT_CHANNEL(object_new(TYPE_KEPT_CHANNEL));
    c->bs = bs;
    bdrv_ref(bs);
    if (g_strcmp0(key, kept.key)) {
        keep_all(bs, g_steal_pointer(&key), ram_end, sn->vm_state_size);
    }
    for (int i = 0; kept.key && i < ARRAY_SIZE(kept.parts); i++) {
        c->parts[i] = kept.parts[i];
        g_bytes_ref(c->parts[i].bytes);
    }
    return qemu_file_new_input(QIO_CHANNEL(c));
}

const uint8_t *ram_reset_kept_devices(const char *key, size_t *size)
{
    return kept.key && !strcmp(kept.key, key)
           ? g_bytes_get_data(kept.parts[1].bytes, size) : NULL;
}

void ram_reset_kept_leave_out(uint64_t start, uint64_t end)
{
    KeptRange range = { start, end };

    if (!kept.left_out) {
        kept.left_out = g_array_new(false, false, sizeof(range));
    }
    g_array_append_val(kept.left_out, range);
}

void ram_reset_kept_leave_nothing_out(void)
{
    g_clear_pointer(&kept.left_out, g_array_unref);
}

/*
 * How many bytes of the second part may be read at once.  Moves *@at behind
 * what is left out there.
 */
static uint64_t next_range(uint64_t *at, uint64_t size)
{
    uint64_t end = size;

    for (int i = 0; kept.left_out && i < kept.left_out->len; i++) {
        KeptRange *range = &g_array_index(kept.left_out, KeptRange, i);

        if (*at >= range->start && *at < range->end) {
            *at = range->end;
            return next_range(at, size);
        }
        if (range->start > *at) {
            end = MIN(end, range->start);
        }
    }
    return end - *at;
}

static ssize_t kept_readv(QIOChannel *ioc, const struct iovec *iov, size_t niov,
                          int **fds, size_t *nfds, int flags, Error **errp)
{
    KeptChannel *c = KEPT_CHANNEL(ioc);
    QEMUIOVector qiov;
    int ret;

    for (int i = 0; i < ARRAY_SIZE(c->parts) && c->parts[i].bytes; i++) {
        size_t size;
        const uint8_t *data = g_bytes_get_data(c->parts[i].bytes, &size);
        uint64_t at = c->offset - c->parts[i].start;

        if (c->offset >= c->parts[i].start && at < size) {
            size = i ? next_range(&at, size) : size - at;
            size = iov_from_buf(iov, niov, 0, data + at, size);
            c->offset = c->parts[i].start + at + size;
            return size;
        }
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

static off_t kept_seek(QIOChannel *ioc, off_t offset, int whence, Error **errp)
{
    KeptChannel *c = KEPT_CHANNEL(ioc);

    assert(whence != SEEK_END);
    c->offset = whence == SEEK_CUR ? c->offset + offset : offset;
    return c->offset;
}

static int kept_close(QIOChannel *ioc, Error **errp)
{
    return 0;
}

static int kept_set_blocking(QIOChannel *ioc, bool enabled, Error **errp)
{
    assert(enabled);
    return 0;
}

static void kept_finalize(Object *obj)
{
    KeptChannel *c = KEPT_CHANNEL(obj);

    clear_parts(c->parts);
    bdrv_unref(c->bs);
}

static void kept_class_init(ObjectClass *oc, RamResetClassData *data)
{
    QIOChannelClass *ioc = QIO_CHANNEL_CLASS(oc);

    ioc->io_readv = kept_readv;
    ioc->io_seek = kept_seek;
    ioc->io_close = kept_close;
    ioc->io_set_blocking = kept_set_blocking;
}

static const TypeInfo kept_channel_info = {
    .name = TYPE_KEPT_CHANNEL,
    .parent = TYPE_QIO_CHANNEL,
    .instance_size = sizeof(KeptChannel),
    .instance_finalize = kept_finalize,
    .class_init = kept_class_init,
};

static void register_types(void)
{
    type_register_static(&kept_channel_info);
}

type_init(register_types)
