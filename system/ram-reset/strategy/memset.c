/*
 * ram-reset-memset: clear in place
 *
 * The reference that every other strategy must equal, and their fallback.
 * block/clear.c does the work.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "system/ram-reset/block/block.h"
#include "system/ram-reset/block/clear.h"
#include "system/ram-reset/options.h"

static bool memset_supports(RamReset *rr, const RamResetBlock *blk,
                            Error **errp)
{
    return true;
}

static int memset_zero(RamReset *rr, RamResetBlock *blk,
                       uint64_t start, uint64_t len)
{
    ram_reset_clear_in_place(blk, start, len, ram_reset_threads(rr));
    return 0;
}

static void memset_class_init(ObjectClass *oc, RamResetClassData *data)
{
    RamResetClass *rrc = RAM_RESET_CLASS(oc);

    rrc->late = true;
    rrc->supports = memset_supports;
    rrc->zero = memset_zero;
}

static const TypeInfo memset_types[] = {
    {
        .name = TYPE_RAM_RESET_MEMSET,
        .parent = TYPE_RAM_RESET,
        .class_init = memset_class_init,
    },
};

DEFINE_TYPES(memset_types)
