/*
 * RAM reset: the baseline, what RAM had
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qapi/error.h"
#include "system/hostmem.h"
#include "system/ram-reset/block/find-data.h"
#include "system/ram-reset/options.h"
#include "system/ram-reset/rewind/baseline.h"
#include "system/ram-reset/template/store.h"

static void baseline_clear(void *base)
{
    BaselineBlock *b = base;

    ram_copy_free(b->copy);
    g_free(b->unwatched);
}

GArray *baseline_new(void)
{
    GArray *all = g_array_new(false, false, sizeof(BaselineBlock));

    g_array_set_clear_func(all, baseline_clear);
    return all;
}

/*
 * Devices write to memory of their own in ways that no log tells, as does QEMU
 * to ROMs.
 */
static bool is_devices_own(RAMBlock *rb)
{
    return ram_reset_block_is_rom(rb) ||
           !object_dynamic_cast(memory_region_owner(rb->mr),
                                TYPE_MEMORY_BACKEND);
}

/* Why writes to @blk might not be seen, to be freed; NULL if they are */
static char *blind_spot(const RamResetBlock *blk)
{
    const char *refusal = ram_reset_block_refusal(blk->rb);

    if (is_devices_own(blk->rb)) {
        return NULL;
    }
    if (refusal) {
        return g_strdup(refusal);
    }
    if (blk->owner && !blk->owner->rewind) {
        return g_strdup_printf("'%s', which covers it, has rewind=off",
                               ram_reset_id(blk->owner));
    }
    return ram_reset_block_external_writer(blk);
}

/* Host pages and target pages need not be the same, nor of one size */
static void copy_range(BaselineBlock *base, uint64_t start, uint64_t len)
{
    uint64_t page = qemu_target_page_size();

    ram_copy_add(base->copy, base->host, QEMU_ALIGN_DOWN(start, page),
                 MIN(QEMU_ALIGN_UP(start + len, page), base->len));
}

/* False with @errp set if that exceeds the limit */
static bool copy_content(BaselineBlock *base, const RamResetBlock *blk,
                         uint64_t limit, uint64_t *size, Error **errp)
{
    g_autoptr(GArray) content = ram_reset_find_content(blk);

    for (unsigned i = 0; i < content->len; i++) {
        PrimRange range = g_array_index(content, PrimRange, i);
        uint64_t len;

        for (; range.len; range.start += len, range.len -= len) {
            len = MIN(RAM_RESET_CHUNK, range.len);
            copy_range(base, range.start, len);
            if (*size + ram_copy_size(base->copy) > limit) {
                error_setg(errp, "the snapshot has more than "
                           "rewind-limit=%" PRIu64 " bytes that are not zero",
                           limit);
                return false;
            }
        }
    }
    *size += ram_copy_size(base->copy);
    return true;
}

static RamCopy *new_copy(const RamResetBlock *blk,
                         const TemplateFile *file)
{
    return file ? template_file_copy(file, template_file_find_block(
                                               file, blk->rb->idstr))
                : ram_copy_new(blk->map.len, qemu_target_page_size());
}

bool baseline_add(GArray *all, const RamResetBlock *blk,
                  const TemplateFile *file, uint64_t limit, uint64_t *size,
                  Error **errp)
{
    BaselineBlock base = {
        .rb = blk->rb,
        .host = blk->map.host,
        .len = blk->map.len,
        .owner = blk->owner,
        .compared = is_devices_own(blk->rb),
    };
    g_autofree char *blind = blk->ignored ? NULL : blind_spot(blk);

    if (blind) {
        error_setg(errp, "RAM block '%s': %s", blk->rb->idstr, blind);
        return false;
    }
    if (!blk->ignored && base.len) {
        base.copy = new_copy(blk, file);
        if (!base.copy) {
            error_setg_errno(errp, errno, "RAM block '%s': no memory for a "
                             "copy", blk->rb->idstr);
            return false;
        }
    }
    g_array_append_val(all, base);
    if (base.copy && file) {
        *size += ram_copy_size(base.copy);
        return true;
    }
    return !base.copy || copy_content(&base, blk, limit, size, errp);
}
