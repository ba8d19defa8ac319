/*
 * Loading snapshots that were saved with migration capability mapped-ram
 *
 * Such a snapshot stores no zero pages.  If loadvm stopped a running guest,
 * QEMU clears these pages.  Otherwise, and with -loadvm, QEMU assumes that RAM
 * is zero, but only a ram-reset object makes it zero.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qapi/error.h"
#include "qemu/bitmap.h"
#include "qemu/cutils.h"
#include "qemu/rcu.h"
#include "system/ram-reset-compat.h"
#include "system/ram-reset-load.h"
#include "system/runstate.h"
#include "migration/migration.h"
#include "migration/options.h"
#include "migration/qemu-file.h"
#include "migration/ram-reset/vmstate/mapped-ram.h"
#include "migration/ram-reset/vmstate/stream.h"

const char *ram_reset_mapped_ram_blocker(void)
{
    if (!migrate_mapped_ram()) {
        return NULL;
    }
    if (!RAM_RESET_MAPPED_RAM) {
        return "migration capability 'mapped-ram' is on, this QEMU cannot have "
               "snapshots with it, set it to off";
    }
    if (migrate_ignore_shared() && !RAM_RESET_MAPPED_RAM_SHARED) {
        return "migration capabilities 'mapped-ram' and 'x-ignore-shared' are "
               "on, this QEMU cannot load a snapshot with both, set one to "
               "off";
    }
    return NULL;
}

static bool clear_piece(RAMBlock *rb, uint64_t start, const uint8_t *data,
                        uint64_t len, void *opaque)
{
    size_t size = qemu_target_page_size();

    for (uint64_t at = 0; at < len; at += size) {
        if (!test_bit((start + at) / size, opaque) &&
            !buffer_is_zero(data + at, size)) {
            memset(rb->host + start + at, 0, size);
        }
    }
    return true;
}

/* No page that is known zero has been written to since the reset */
static bool absent_are_zero(RAMBlock *rb, const unsigned long *stored)
{
    size_t size = qemu_target_page_size();
    uint64_t nr = rb->used_length / size, at, end;

    for (at = find_next_zero_bit(stored, nr, 0); at < nr;
         at = find_next_zero_bit(stored, nr, end)) {
        end = find_next_bit(stored, nr, at);
        if (!ram_reset_known_zero(rb->host + at * size, (end - at) * size)) {
            return false;
        }
    }
    return true;
}

static bool clear_block(void *opaque, const char *name, uint64_t len,
                        const unsigned long *stored, Error **errp)
{
    RAMBlock *rb = qemu_ram_block_by_name(name);

    if (!rb || len != rb->used_length) {
        error_setg(errp, "RAM block '%s' has %" PRIu64 " bytes in the "
                   "snapshot, and %" PRIu64 " in this machine", name, len,
                   (uint64_t)(rb ? rb->used_length : 0));
        return false;
    }
    /*
     * If the guest was running, QEMU has cleared the pages.  But another block
     * may have written to the file of a private mapping since.
     */
    if (runstate_check(RUN_STATE_RESTORE_VM) &&
        (qemu_ram_is_shared(rb) || rb->fd < 0)) {
        return true;
    }
    if (!absent_are_zero(rb, stored)) {
        ram_reset_foreach_content(rb, clear_piece, (void *)stored);
    }
    return true;
}

bool ram_reset_clear_absent(BlockDriverState *bs, int64_t ram, Error **errp)
{
    static const RamStreamVisitor visitor = {
        .stored = clear_block,
    };
    RamStreamResult res;
    QEMUFile *f;

    if (ram < 0) {
        error_setg(errp, "the position of RAM in the VM state is unknown, so "
                   "the zero pages of mapped-ram are unknown");
        return false;
    }
    RCU_READ_LOCK_GUARD();
    f = ram_stream_open(bs);
    res = ram_stream_walk_section(f, ram, &visitor, NULL, errp);
    qemu_fclose(f);
    return res == RAM_STREAM_DONE;
}
