/*
 * Templates: reasons why one cannot be made or used
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
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

char *template_misfit(const TemplateFile *f)
{
    unsigned found = 0;
    RAMBlock *rb;

    if (f->page_size != qemu_target_page_size()) {
        return g_strdup("its pages have another size");
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
            return g_strdup_printf("RAM block '%s' is not in it, or has "
                                   "another size", rb->idstr);
        }
        found++;
    }
    return found == f->blocks->len
           ? NULL : g_strdup("it has RAM that this machine lacks");
}

const char *template_host_refusal(void)
{
    /* Mapping a file would then populate its holes */
    return should_mlock(mlock_state)
           ? "memory is locked (-overcommit mem-lock)" : NULL;
}

/*
 * The reason why a template could have another content than the snapshot, or
 * could not restore @blk, to be freed; NULL if there is none
 */
static char *block_refusal(const RamResetBlock *blk)
{
    g_autofree char *listener = NULL;

    if (memory_region_has_ram_discard_manager(blk->rb->mr)) {
        return g_strdup("parts of it are unplugged (virtio-mem)");
    }
    if (ram_reset_block_is_aliased(blk->rb)) {
        return g_strdup("another RAM block maps its file shared");
    }
    if (!blk->map.shared) {
        return NULL;
    }
    /* Trusted devices write nothing unlogged while the guest is stopped */
    listener = ram_reset_unlogged_listener();
    if (blk->map.fd >= 0 && listener) {
        return g_steal_pointer(&listener);
    }
    if (blk->map.fd >= 0 && ram_reset_vhost_is_busy()) {
        return g_strdup("a vhost device may not have finished its requests");
    }
    return ram_reset_block_external_writer(blk);
}

char *template_refusal(void)
{
    g_autoptr(RamResetBlockList) list = ram_reset_list_blocks();

    for (unsigned i = 0; i < list->nr; i++) {
        const RamResetBlock *blk = &list->blocks[i];
        g_autofree char *reason = NULL;

        if (template_has_block(blk->rb)) {
            reason = block_refusal(blk);
        }
        if (reason) {
            return g_strdup_printf("RAM block '%s': %s", blk->rb->idstr,
                                   reason);
        }
    }
    return NULL;
}
