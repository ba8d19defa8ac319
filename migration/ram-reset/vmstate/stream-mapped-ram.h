/*
 * The walk along a saved VM state, as its two files share it
 *
 * For vmstate/stream.c; others include vmstate/stream.h.
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
    uint64_t here;          /* with mapped-ram, no block comes before this */
    bool ignore_shared;     /* the RAM blocks come with their addresses */
    bool mapped_ram;        /* each block is followed by its pages */
    bool finished;          /* nothing more is wanted */
    Error **errp;
} RamStream;

/*
 * A read that fails sets an error in the file.  One beyond the end need not:
 * a qcow2 image has zeros there, so nothing may loop for as long as they last.
 */
static inline RamStreamResult ram_stream_check(RamStream *s)
{
    int ret = qemu_file_get_error(s->f);

    if (ret) {
        error_setg_errno(s->errp, -ret, "the VM state ends too early, or "
                         "cannot be read");
        return RAM_STREAM_BAD;
    }
    return RAM_STREAM_DONE;
}

/**
 * ram_stream_mapped_block: visit the pages of a block
 *
 * @s: behind the name and length of the block, which the caller has read; then
 *     at the next block's name
 */
RamStreamResult ram_stream_mapped_block(RamStream *s, const char *name,
                                        uint64_t len);

#endif
