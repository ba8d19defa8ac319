/*
 * Reading RAM's part of a saved VM state without loading it
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef MIGRATION_RAM_RESET_VMSTATE_STREAM_H
#define MIGRATION_RAM_RESET_VMSTATE_STREAM_H

#include "migration/ram-reset/vmstate/format.h"

/**
 * RamStreamVisitor: the methods that a walk calls, in the order of the stream
 *
 * A method returns false with @errp set to stop the walk.  Names are RAM block
 * names; lengths and offsets are in bytes.
 *
 * @configuration: called with the saved machine type, and the saved values of
 *     migration capabilities x-ignore-shared and mapped-ram.  Very old machine
 *     types do not save a configuration.  May be NULL.
 * @block: called with each RAM block and its used_length.  May be NULL.
 * @pages: called with consecutive target pages.  @data holds their @len bytes,
 *     or is NULL if the pages are zero.  With migration capability mapped-ram,
 *     the pages of a block are visited before the next block.  If this method
 *     is NULL, the walk succeeds before the first page.
 * @stored: called with each RAM block of a snapshot with mapped-ram, and a
 *     bitmap with a bit per target page, set if the page is stored.  May be
 *     NULL.
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
    /* A method returned false and has set @errp */
    RAM_STREAM_STOPPED,
    /* This is no VM state, or the VM state is damaged; @errp has the reason */
    RAM_STREAM_BAD,
    /* A section comes first that only a load can read; @errp names it */
    RAM_STREAM_UNKNOWN,
} RamStreamResult;

/**
 * ram_stream_open: open the VM state in @bs for reading; with the BQL held
 *
 * Returns: a file at the first byte; the caller closes it with qemu_fclose()
 */
QEMUFile *ram_stream_open(BlockDriverState *bs);

/**
 * ram_stream_walk: visit all RAM sections
 *
 * @f: a saved VM state, at its first byte; its position is undefined afterwards
 */
RamStreamResult ram_stream_walk(QEMUFile *f, const RamStreamVisitor *visitor,
                                void *opaque, Error **errp);

/**
 * ram_stream_walk_section: visit a single RAM section
 *
 * The section must have all of RAM, as the first one has with mapped-ram.
 *
 * @f: a VM state that was saved with the current migration capabilities
 * @at: the position in @f of the content of the section, in bytes
 */
RamStreamResult ram_stream_walk_section(QEMUFile *f, int64_t at,
                                        const RamStreamVisitor *visitor,
                                        void *opaque, Error **errp);

#endif
