/*
 * Templates: reasons why one cannot be made or used
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qapi/error.h"
#include "qemu/rcu.h"
#include "migration/misc.h"
#include "system/system.h"
#include "system/ram-reset-load.h"
#include "system/ram-reset/block-list.h"
#include "system/ram-reset/block/listeners.h"
#include "system/ram-reset/block/vhost.h"
#include "system/ram-reset/template/refusal.h"

bool template_has_block(RAMBlock *rb)
{
    return rb->used_length && !migrate_ram_is_ignored(rb);
}

bool template_fits(const TemplateFile *f, Error **errp)
{
    unsigned found = 0;
    RAMBlock *rb;

    if (f->page_size != qemu_target_page_size()) {
        error_setg(errp, "its pages have another size");
        return false;
    }
    RCU_READ_LOCK_GUARD();
    RAMBLOCK_FOREACH(rb) {
        int nr;

        if (!template_has_block(rb)) {
            continue;
        }
        nr = template_file_find_block(f, rb->idstr);
        if (nr < 0 || g_array_index(f->blocks, TemplateBlock, nr).len !=
                      rb->used_length) {
            error_setg(errp, "RAM block '%s' is not in it, or has another size",
                       rb->idstr);
            return false;
        }
        found++;
    }
    if (found != f->blocks->len) {
        error_setg(errp, "it has RAM that this machine lacks");
        return false;
    }
    return true;
}

bool template_host_is_able(Error **errp)
{
    /* Mapping a file would then populate its holes */
    if (should_mlock(mlock_state)) {
        error_setg(errp, "memory is locked (-overcommit mem-lock)");
        return false;
    }
    return true;
}

/* Whether a template has the snapshot's content, and can restore @blk */
static bool template_check_block(const RamResetBlock *blk, Error **errp)
{
    g_autofree char *listener = NULL, *writer = NULL;

    if (memory_region_has_ram_discard_manager(blk->rb->mr)) {
        error_setg(errp, "parts of it are unplugged (virtio-mem)");
        return false;
    }
    if (ram_reset_block_is_aliased(blk->rb)) {
        error_setg(errp, "another RAM block maps its file shared");
        return false;
    }
    if (!blk->map.shared) {
        return true;
    }
    /* Trusted devices write nothing unlogged while the guest is stopped */
    listener = ram_reset_unlogged_listener();
    if (blk->map.fd >= 0 && listener) {
        error_setg(errp, "%s", listener);
        return false;
    }
    if (blk->map.fd >= 0 && ram_reset_vhost_is_busy()) {
        error_setg(errp, "a vhost device may not have finished its requests");
        return false;
    }
    writer = ram_reset_block_external_writer(blk);
    if (writer) {
        error_setg(errp, "%s", writer);
    }
    return !writer;
}

bool template_ram_is_able(Error **errp)
{
    ERRP_GUARD();
    g_autoptr(RamResetBlockList) list = ram_reset_list_blocks();

    for (unsigned i = 0; i < list->nr; i++) {
        const RamResetBlock *blk = &list->blocks[i];

        if (template_has_block(blk->rb) &&
            !template_check_block(blk, errp)) {
            error_prepend(errp, "RAM block '%s': ", blk->rb->idstr);
            return false;
        }
    }
    return true;
}
