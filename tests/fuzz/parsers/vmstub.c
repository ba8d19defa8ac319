/*
 * A VM state in memory, for parsers that read one from an image
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "vmstub.h"
#include "qapi/error.h"
#include "qobject/qdict.h"
#include "block/block.h"
#include "exec/target_page.h"
#include "hw/core/cpu.h"
#include "migration/ram-reset/vmstate/stream.h"
#include "migration.h"
#include "qemu-file.h"
#include "savevm.h"

#define ZEROS_BEHIND (UINT64_C(16) << 20)

const uint8_t *vmstub_data;
size_t vmstub_size;

/* The image */

static int show_snapshot(BlockDriverState *bs, const char *id,
                         const char *name, Error **errp)
{
    return 0;
}

static BlockDriver driver = {
    .format_name = "qcow2",
    .bdrv_snapshot_load_tmp = show_snapshot,
};

BlockDriverState *vmstub_image(void)
{
    static BlockDriverState bs, file;
    static BdrvChild child = { .bs = &file };

    bs.drv = &driver;
    bs.file = &child;
    return &bs;
}

static int read_at(void *buf, uint64_t at, size_t size)
{
    size_t there = at < vmstub_size ? MIN(size, vmstub_size - at) : 0;

    if (at > vmstub_size + ZEROS_BEHIND ||
        size > vmstub_size + ZEROS_BEHIND - at) {
        return -EIO;
    }
    if (size) {
        memset(buf, 0, size);
        memcpy(buf, vmstub_data + (there ? at : 0), there);
    }
    return 0;
}

int bdrv_load_vmstate(BlockDriverState *bs, uint8_t *buf, int64_t pos, int size)
{
    return pos < 0 || size < 0 ? -EINVAL : read_at(buf, pos, size) ?: size;
}

BlockDriverState *bdrv_open(const char *filename, const char *reference,
                            QDict *options, int flags, Error **errp)
{
    qobject_unref(options);
    return vmstub_image();
}

int bdrv_snapshot_load_tmp(BlockDriverState *bs, const char *id,
                           const char *name, Error **errp)
{
    return 0;
}

const char *bdrv_get_node_name(const BlockDriverState *bs)
{
    return "node";
}

void bdrv_unref(BlockDriverState *bs)
{
}

void bdrv_graph_rdlock_main_loop(void)
{
}

void bdrv_graph_rdunlock_main_loop(void)
{
}

/* The file */

struct QEMUFile {
    uint64_t at;
    int error;
};

QEMUFile *ram_stream_open(BlockDriverState *bs)
{
    return g_new0(QEMUFile, 1);
}

int qemu_fclose(QEMUFile *f)
{
    g_free(f);
    return 0;
}

int qemu_file_get_error(QEMUFile *f)
{
    return f->error;
}

void qemu_set_offset(QEMUFile *f, off_t off, int whence)
{
    f->at = off;
}

size_t coroutine_mixed_fn qemu_get_buffer(QEMUFile *f, uint8_t *buf,
                                          size_t size)
{
    f->error = f->error ?: read_at(buf, f->at, size);
    f->at += f->error ? 0 : size;
    return f->error ? 0 : size;
}

size_t coroutine_mixed_fn qemu_get_buffer_in_place(QEMUFile *f, uint8_t **buf,
                                                   size_t size)
{
    return qemu_get_buffer(f, *buf, size);
}

size_t qemu_get_buffer_at(QEMUFile *f, const uint8_t *buf, size_t buflen,
                          off_t pos)
{
    f->error = f->error ?: read_at((uint8_t *)buf, pos, buflen);
    return f->error ? 0 : buflen;
}

static uint64_t get_number(QEMUFile *f, size_t size)
{
    uint8_t bytes[8] = {};

    qemu_get_buffer(f, bytes + sizeof(bytes) - size, size);
    return ldq_be_p(bytes);
}

int coroutine_mixed_fn qemu_peek_byte(QEMUFile *f, int offset)
{
    uint8_t byte = 0;

    read_at(&byte, f->at + offset, 1);
    return byte;
}

int coroutine_mixed_fn qemu_get_byte(QEMUFile *f)
{
    return get_number(f, 1);
}

unsigned int qemu_get_be16(QEMUFile *f)
{
    return get_number(f, 2);
}

unsigned int qemu_get_be32(QEMUFile *f)
{
    return get_number(f, 4);
}

uint64_t qemu_get_be64(QEMUFile *f)
{
    return get_number(f, 8);
}

/* The machine */

const TargetPageBits target_page = {
    .decided = true, .bits = 12, .mask = (uint64_t)-1 << 12,
};

MigrationState *migrate_get_current(void)
{
    static MigrationState state = { .send_section_footer = true };

    return &state;
}

bool should_send_vmdesc(void)
{
    return true;
}

CPUState *qemu_get_cpu(int index)
{
    return NULL;
}
