/*
 * ram-reset-remap: replace memory by fresh memory
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "system/ram-reset/block/fresh.h"

static bool remap_supports(RamReset *rr, const RamResetBlock *blk,
                           Error **errp)
{
    return ram_reset_fresh_is_allowed(blk, errp);
}

static int remap_zero(RamReset *rr, RamResetBlock *blk,
                      uint64_t start, uint64_t len)
{
    return start || len != blk->map.len ? -EINVAL : ram_reset_fresh(blk);
}

static void remap_class_init(ObjectClass *oc, RamResetClassData *data)
{
    RamResetClass *rrc = RAM_RESET_CLASS(oc);

    rrc->supports = remap_supports;
    rrc->zero = remap_zero;
}

static const TypeInfo remap_types[] = {
    {
        .name = TYPE_RAM_RESET_REMAP,
        .parent = TYPE_RAM_RESET,
        .class_init = remap_class_init,
    },
};

DEFINE_TYPES(remap_types)
