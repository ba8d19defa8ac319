/*
 * The state of a walk along a saved VM state, for vmstate/stream*.c only
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef MIGRATION_RAM_RESET_VMSTATE_STREAM_MAPPED_RAM_H
#define MIGRATION_RAM_RESET_VMSTATE_STREAM_MAPPED_RAM_H

#include "qapi/error.h"
#include "migration/qemu-file.h"
#include "migration/ram-reset/vmstate/stream.h"

typedef struct RamStream {
    QEMUFile *f;
    const RamStreamVisitor *visitor;
    void *opaque;
    char block[VMSTATE_NAME];
    uint8_t *page;
    uint32_t section;
    uint64_t here;          /* with mapped-ram, the next block's lowest place */
    bool ignore_shared;     /* the list of blocks has their addresses */
    bool mapped_ram;        /* its pages follow each block */
    bool finished;          /* the visitor needs no more */
    Error **errp;
} RamStream;

/*
 * A failed read sets an error in the file.  A read beyond the end may succeed:
 * a qcow2 image has zeros there, so no loop may wait for a byte other than 0.
 */
static inline RamStreamResult ram_stream_check(RamStream *s)
{
    int ret = qemu_file_get_error(s->f);

    if (ret) {
        error_setg_errno(s->errp, -ret, "the VM state is truncated, or "
                         "cannot be read");
        return RAM_STREAM_BAD;
    }
    return RAM_STREAM_DONE;
}

/**
 * ram_stream_mapped_block: visit the pages of a block
 *
 * @s: behind the name and the length of the block, which the caller has read.
 *     On success, @s is at the name of the next block.
 */
RamStreamResult ram_stream_mapped_block(RamStream *s, const char *name,
                                        uint64_t len);

#endif
