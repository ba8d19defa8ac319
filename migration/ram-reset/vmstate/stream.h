/*
 * Reading RAM's part of a saved VM state without loading it
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef MIGRATION_RAM_RESET_VMSTATE_STREAM_H
#define MIGRATION_RAM_RESET_VMSTATE_STREAM_H

#include "migration/ram-reset/vmstate/format.h"

/**
 * RamStreamVisitor: what to do with the parts of a stream
 *
 * Each method returns false with @errp set to stop the walk.  Names are
 * RAM block names, lengths and offsets are in bytes.
 *
 * @configuration: the machine type that was saved, and whether migration
 *     capabilities x-ignore-shared and mapped-ram were on.  Very old machine
 *     types do not save it.  May be NULL.
 * @block: a RAM block of the snapshot, with its used_length.  May be NULL.
 * @pages: target pages in a row.  @data holds their @len bytes, or is NULL if
 *     they are zero.  NULL to stop, with success, before the first page.
 *     With migration capability mapped-ram, a block's pages are visited before
 *     the next block.
 * @stored: a RAM block of a snapshot with mapped-ram, with its used_length, and
 *     a bit per target page that is set if the page is stored.  May be NULL.
 */
typedef struct RamStreamVisitor {
    bool (*configuration)(void *opaque, const char *machine,
                          bool ignore_shared, bool mapped_ram, Error **errp);
    bool (*block)(void *opaque, const char *name, uint64_t len, Error **errp);
    bool (*pages)(void *opaque, const char *name, uint64_t offset,
                  const uint8_t *data, uint64_t len, Error **errp);
    bool (*stored)(void *opaque, const char *name, uint64_t len,
                   const unsigned long *bitmap, Error **errp);
} RamStreamVisitor;

typedef enum RamStreamResult {
    RAM_STREAM_DONE,
    /* A method returned false; @errp is what it set */
    RAM_STREAM_STOPPED,
    /* This is no VM state, or it is damaged; @errp says what is wrong */
    RAM_STREAM_BAD,
    /* Something that only a load can read comes first; @errp names it */
    RAM_STREAM_UNKNOWN,
} RamStreamResult;

/**
 * ram_stream_open: the VM state in @bs, for reading
 *
 * Returns: a file at its first byte; close it with qemu_fclose()
 */
QEMUFile *ram_stream_open(BlockDriverState *bs);

/**
 * ram_stream_walk: visit RAM's sections
 *
 * @f: a saved VM state, from its first byte; read to somewhere behind RAM
 */
RamStreamResult ram_stream_walk(QEMUFile *f, const RamStreamVisitor *visitor,
                                void *opaque, Error **errp);

/**
 * ram_stream_walk_section: visit a single section of RAM, with mapped-ram the
 * one that has all of it
 *
 * @f: a VM state that was saved with the migration capabilities of now
 * @at: where the content of the section begins
 */
RamStreamResult ram_stream_walk_section(QEMUFile *f, int64_t at,
                                        const RamStreamVisitor *visitor,
                                        void *opaque, Error **errp);

#endif
