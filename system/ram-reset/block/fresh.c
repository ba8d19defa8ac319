/*
 * RAM reset: replace a block's memory by fresh memory
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qapi/error.h"
#include "qemu/error-report.h"
#include "qemu/madvise.h"
#include "qemu/mmap-alloc.h"
#include "system/qtest.h"
#include "system/ram-reset/block/fresh.h"

PrimMap ram_reset_block_whole_map(const RamResetBlock *blk)
{
    PrimMap map = blk->map;

    map.len = ROUND_UP(blk->rb->max_length, map.page_size);
    return map;
}

bool ram_reset_fresh_is_allowed(const RamResetBlock *blk, Error **errp)
{
    const char *reason = ram_reset_block_pin_reason(blk);
    g_autofree char *user = NULL;

    if (!reason && ram_reset_block_has_preallocated_parts(blk)) {
        reason = "parts of it are preallocated by virtio-mem";
    }
    if (!reason && blk->map.fd >= 0 && !prim_is_memfd(blk->map.fd)) {
        reason = "its file is not a memfd";
    }
    if (!reason && !blk->map.shared &&
        blk->map.page_size > qemu_real_host_page_size()) {
        reason = "fresh private hugepages would have to be reserved beside "
                 "the old ones";
    }
    user = reason ? NULL : ram_reset_block_external_user(blk);
    if (reason || user) {
        error_setg(errp, "%s", reason ?: user);
        return false;
    }
    return true;
}

static void fresh_advise(const PrimMap *map, int advice)
{
    ++*map->calls;
    /* A refusal is not an error, as it was not when RAM was made */
    qemu_madvise(map->host, map->len, advice);
}

void ram_reset_advise_as_before(RAMBlock *rb, const PrimMap *map)
{
    HostMemoryBackend *backend = ram_reset_block_backend(rb);
    bool merge = backend ? backend->merge
                         : map->fd < 0 && machine_mem_merge(current_machine);
    bool dump = machine_dump_guest_core(current_machine) &&
                (!backend || backend->dump);

    if (merge) {
        fresh_advise(map, QEMU_MADV_MERGEABLE);
    }
    if (!dump) {
        fresh_advise(map, QEMU_MADV_DONTDUMP);
    }
    fresh_advise(map, QEMU_MADV_HUGEPAGE);
    if (!qtest_enabled()) {
        fresh_advise(map, QEMU_MADV_DONTFORK);
    }
}

static int fresh_preallocate(const RamResetBlock *blk)
{
    HostMemoryBackend *backend = ram_reset_block_backend(blk->rb);
    Error *err = NULL;

    if (!qemu_prealloc_mem(blk->map.fd, (char *)blk->map.host,
                           memory_region_size(blk->rb->mr),
                           backend->prealloc_threads,
                           backend->prealloc_context, false, &err)) {
        warn_report_err(err);
        return -ENOMEM;
    }
    return 0;
}

void ram_reset_die_without_memory(const char *name)
{
    error_report("RAM block '%s' could not be mapped again, the host has no "
                 "memory left", name);
    exit(1);
}

int ram_reset_fresh(RamResetBlock *blk)
{
    PrimMap map = ram_reset_block_whole_map(blk);
    RAMBlock *rb = blk->rb;
    PrimFresh fresh;
    int ret = prim_fresh_map(&map, &fresh);

    if (ret < 0) {
        return ret;
    }
    /* Block drivers may have registered the memory, with its file */
    ram_block_notify_remove(rb->host, rb->used_length, rb->max_length);
    ret = prim_fresh_swap(&map, &fresh);
    if (ret == -EFAULT) {
        ram_reset_die_without_memory(blk->info->name);
    }
    ram_block_notify_add(rb->host, rb->used_length, rb->max_length);
    ram_reset_advise_as_before(rb, &map);
    if (!ret && ram_reset_block_is_preallocated(blk)) {
        ret = fresh_preallocate(blk);
    }
    if (!ret) {
        blk->info->zeroed_bytes += blk->map.len;
        blk->info->discarded_pages += blk->map.len >> qemu_target_page_bits();
    }
    return ret;
}
