/*
 * RAM reset: the baseline, a copy of RAM as a snapshot has it
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/bitmap.h"
#include "system/hostmem.h"
#include "system/ram-reset/block/find-data.h"
#include "system/ram-reset/options.h"
#include "system/ram-reset/rewind/baseline.h"
#include "system/ram-reset/rewind/blockers.h"
#include "system/ram-reset/template/store.h"

static void baseline_clear(void *base)
{
    BaselineBlock *b = base;

    ram_copy_free(b->copy);
    g_free(b->name);
    g_free(b->unwatched);
    g_free(b->pending);
}

GArray *baseline_new(void)
{
    GArray *all = g_array_new(false, false, sizeof(BaselineBlock));

    g_array_set_clear_func(all, baseline_clear);
    return all;
}

/*
 * The dirty log may lack the writes of a device to its own memory, and those of
 * QEMU to ROMs.
 */
static bool is_devices_own(RAMBlock *rb)
{
    return ram_reset_block_is_rom(rb) ||
           !object_dynamic_cast(memory_region_owner(rb->mr),
                                TYPE_MEMORY_BACKEND);
}

static RamResetBlocker *block_blocker(RamResetBlockerId id, RAMBlock *rb,
                                      const char *why)
{
    g_autofree char *detail = g_strdup_printf("RAM block '%s': %s", rb->idstr,
                                              why);

    return ram_reset_blocker_new(id, detail);
}

RamResetBlocker *baseline_block_blocker(const RamResetBlock *blk)
{
    const char *refusal = ram_reset_block_refusal(blk->rb);
    g_autofree char *writer = NULL;

    if (blk->ignored || is_devices_own(blk->rb)) {
        return NULL;
    }
    if (refusal) {
        return block_blocker(RAM_RESET_BLOCKER_RAM_BLOCK, blk->rb, refusal);
    }
    if (blk->owner && !blk->owner->rewind) {
        return block_blocker(RAM_RESET_BLOCKER_REWIND_OFF, blk->rb,
                             ram_reset_id(blk->owner));
    }
    writer = ram_reset_block_external_writer(blk);
    return writer ? block_blocker(RAM_RESET_BLOCKER_EXTERNAL_WRITER, blk->rb,
                                  writer) : NULL;
}

/* Host pages and target pages may differ in size */
static void copy_range(BaselineBlock *base, uint64_t start, uint64_t len)
{
    uint64_t page = qemu_target_page_size();

    ram_copy_add(base->copy, base->host, QEMU_ALIGN_DOWN(start, page),
                 MIN(QEMU_ALIGN_UP(start + len, page), base->len));
}

static RamResetBlocker *limit_blocker(uint64_t limit)
{
    g_autofree char *detail = g_strdup_printf("rewind-limit=%" PRIu64, limit);

    return ram_reset_blocker_new(RAM_RESET_BLOCKER_REWIND_LIMIT, detail);
}

/* Whether the store has all pages; otherwise they are copied */
static bool expect_content(BaselineBlock *base, RamResetPageStore *store)
{
    uint64_t pages = base->len / qemu_target_page_size();
    g_autofree unsigned long *stored = NULL;

    /* A device may write to its own memory without the log */
    if (!store || base->compared) {
        return false;
    }
    stored = bitmap_new(pages);
    return store->find(store, base->rb, stored) &&
           ram_copy_expect(base->copy, stored);
}

static RamResetBlocker *copy_content(BaselineBlock *base,
                                     const RamResetBlock *blk, uint64_t limit,
                                     uint64_t *size)
{
    g_autoptr(GArray) content = ram_reset_find_content(blk);

    for (unsigned i = 0; i < content->len; i++) {
        PrimRange range = g_array_index(content, PrimRange, i);
        uint64_t len;

        for (; range.len; range.start += len, range.len -= len) {
            len = MIN(RAM_RESET_CHUNK, range.len);
            copy_range(base, range.start, len);
            if (*size + ram_copy_size(base->copy) > limit) {
                return limit_blocker(limit);
            }
        }
    }
    *size += ram_copy_size(base->copy);
    return NULL;
}

bool baseline_fits(const GArray *all, const RamResetBlockList *list)
{
    for (unsigned i = 0; i < list->nr; i++) {
        const RamResetBlock *blk = &list->blocks[i];
        const BaselineBlock *base = &g_array_index(all, BaselineBlock, i);

        if (i == all->len || base->rb != blk->rb ||
            base->host != blk->map.host || base->len != blk->map.len ||
            strcmp(base->name, blk->rb->idstr) ||
            !base->copy != (blk->ignored || !blk->map.len)) {
            return false;
        }
    }
    return list->nr == all->len;
}

/* An unplugged block leaves the snapshot before it is removed */
bool baseline_is_of_all(const GArray *all)
{
    unsigned nr = 0;
    RAMBlock *rb;

    RCU_READ_LOCK_GUARD();
    RAMBLOCK_FOREACH(rb) {
        if (qemu_ram_is_migratable(rb)) {
            BaselineBlock *base;

            if (nr == all->len) {
                return false;
            }
            base = &g_array_index(all, BaselineBlock, nr++);
            if (base->rb != rb || base->host != rb->host ||
                base->len != rb->used_length) {
                return false;
            }
        }
    }
    return nr == all->len;
}

RamResetBlocker *baseline_add(GArray *all, const RamResetBlock *blk,
                              const TemplateFile *file,
                              RamResetPageStore *store, uint64_t limit,
                              uint64_t *size)
{
    BaselineBlock base = {
        .rb = blk->rb,
        .host = blk->map.host,
        .len = blk->map.len,
        .owner = blk->owner,
        .compared = is_devices_own(blk->rb),
    };
    int in_file = file ? template_file_find_block(file, blk->rb->idstr) : -1;
    RamResetBlocker *why = baseline_block_blocker(blk);

    if (why) {
        return why;
    }
    if (!blk->ignored && base.len) {
        base.copy = in_file >= 0
                    ? template_file_copy(file, in_file)
                    : ram_copy_new(base.len, qemu_target_page_size());
        if (!base.copy) {
            return block_blocker(RAM_RESET_BLOCKER_NO_MEMORY, blk->rb,
                                 g_strerror(errno));
        }
    }
    base.name = g_strdup(blk->rb->idstr);
    g_array_append_val(all, base);
    if (base.copy && (in_file >= 0 || expect_content(&base, store))) {
        *size += ram_copy_size(base.copy);
        return in_file < 0 && *size > limit ? limit_blocker(limit) : NULL;
    }
    return base.copy ? copy_content(&base, blk, limit, size) : NULL;
}
