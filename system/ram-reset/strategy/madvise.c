/*
 * ram-reset-madvise: discard the pages
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qapi/error.h"
#include "system/ram-reset/block/block.h"

static bool madvise_supports(RamReset *rr, const RamResetBlock *blk,
                             Error **errp)
{
    const char *reason = ram_reset_block_pin_reason(blk);

    if (!reason && (ram_reset_block_is_preallocated(blk) ||
                    ram_reset_block_has_preallocated_parts(blk))) {
        reason = "memory is preallocated (prealloc=on)";
    }
    if (!reason && blk->backing == PRIM_PRIVATE_FILE) {
        reason = "private mapping of a file: discarded pages would show the "
                 "file's bytes";
    }
    if (!reason && blk->map.len % blk->map.page_size) {
        reason = "its size is not a multiple of its page size";
    }
    if (reason) {
        error_setg(errp, "%s", reason);
    }
    return !reason;
}

static int madvise_zero(RamReset *rr, RamResetBlock *blk,
                        uint64_t start, uint64_t len)
{
    int ret = prim_discard(&blk->map, blk->backing, start, len);

    if (!ret) {
        blk->info->zeroed_bytes += len;
        blk->info->discarded_pages += len >> qemu_target_page_bits();
    }
    return ret;
}

static void madvise_class_init(ObjectClass *oc, RamResetClassData *data)
{
    RamResetClass *rrc = RAM_RESET_CLASS(oc);

    rrc->discards = true;
    rrc->supports = madvise_supports;
    rrc->zero = madvise_zero;
}

static const TypeInfo madvise_types[] = {
    {
        .name = TYPE_RAM_RESET_MADVISE,
        .parent = TYPE_RAM_RESET,
        .class_init = madvise_class_init,
    },
};

DEFINE_TYPES(madvise_types)
