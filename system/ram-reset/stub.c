/*
 * RAM reset: hosts that it has no primitives for, so no object can be made
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "system/ram-reset-code.h"
#include "system/ram-reset-load.h"
#include "system/ram-reset-rewind.h"
#include "system/ram-reset-template.h"

void ram_reset_expect_load(void)
{
}

bool ram_reset_backend_alloc(HostMemoryBackend *backend,
                             bool (*alloc)(HostMemoryBackend *backend,
                                           Error **errp),
                             Error **errp)
{
    return alloc(backend, errp);
}

bool ram_reset_is_unchanged(const void *opaque)
{
    return false;
}

void ram_reset_vhost_starts(const struct vhost_dev *dev)
{
}

bool ram_reset_enabled(void)
{
    return false;
}

bool ram_reset_verify_wanted(void)
{
    return false;
}

const char *ram_reset_load_refusal(void)
{
    return NULL;
}

bool ram_reset_new_vmgenid_wanted(void)
{
    return false;
}

bool ram_reset_covers(RAMBlock *rb)
{
    return false;
}

void ram_reset_begin(bool all_notified, uint64_t expected)
{
}

bool ram_reset_do_known_zero(const void *host, size_t size)
{
    return false;
}

void ram_reset_page_loaded(RAMBlock *rb, ram_addr_t offset, RamResetPage what)
{
}

uint64_t ram_reset_known_run(RAMBlock *rb, ram_addr_t offset, uint64_t max)
{
    return 0;
}

void ram_reset_pages_skipped(RAMBlock *rb, uint64_t pages)
{
}

void ram_reset_complete_zeroing(void)
{
}

void ram_reset_foreach_content(RAMBlock *rb,
                               bool (*func)(RAMBlock *rb, uint64_t start,
                                            const uint8_t *data, uint64_t len,
                                            void *opaque),
                               void *opaque)
{
}

RamResetBlockInfoList *ram_reset_finish(bool loaded)
{
    return NULL;
}

RamResetObjectInfoList *ram_reset_query_objects(void)
{
    return NULL;
}

uint64_t ram_reset_fallbacks(void)
{
    return 0;
}

void ram_reset_slots_change(bool change)
{
}

GArray *ram_reset_map_copy(void)
{
    return NULL;
}

bool ram_reset_map_freeze(const GArray *map)
{
    return false;
}

void ram_reset_map_thaw(void)
{
}

bool ram_reset_keeps_code(void)
{
    return false;
}

void ram_reset_code_release(bool kept, bool loaded)
{
}

bool ram_reset_rewind_wanted(void)
{
    return false;
}

bool ram_reset_take_baseline(bool loaded)
{
    return false;
}

void ram_reset_forget_baseline(const char *why)
{
}

void ram_reset_no_baseline(const char *why)
{
}

const char *ram_reset_rewind_blocker(void)
{
    return "not on this host";
}

void ram_reset_rewind(void)
{
}

RamResetRewindInfo *ram_reset_query_rewind(void)
{
    return NULL;
}

void ram_reset_do_will_change(RAMBlock *rb, uint64_t start, uint64_t len)
{
}

void ram_reset_do_dma_map(RAMBlock *rb, uint64_t start, uint64_t len)
{
}

uint64_t ram_reset_do_dma_unmap(RAMBlock *rb, uint64_t start, uint64_t len,
                                uint64_t access_len)
{
    return access_len;
}

void ram_reset_unpopulated_begin(void)
{
}

void ram_reset_unpopulated_end(void)
{
}

bool ram_reset_is_unpopulated(const void *page)
{
    return false;
}

void ram_reset_stop_tracking(void)
{
}

bool ram_reset_templates_wanted(void)
{
    return false;
}

bool ram_reset_template_find(const char *identity, int64_t *note)
{
    return false;
}

bool ram_reset_template_load(void)
{
    return false;
}

void ram_reset_template_make(const char *identity, int64_t note, bool loaded)
{
}

bool ram_reset_has_template(void)
{
    return false;
}

char *ram_reset_template_path(void)
{
    return NULL;
}

void ram_reset_template_remove(const char *why)
{
}

void ram_reset_template_retire(const char *identity)
{
}

void ram_reset_template_close(void)
{
}

RamResetTemplateInfo *ram_reset_query_template(void)
{
    return NULL;
}

bool ram_reset_do_discard(RAMBlock *rb, uint64_t start, uint64_t len)
{
    return false;
}
