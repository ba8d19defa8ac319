/*
 * RAM reset: keeping what RAM has
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qapi/error.h"
#include "system/hostmem.h"
#include "kept.h"
#include "templates.h"

static void kept_clear(void *kept)
{
    template_free(((Kept *)kept)->template);
}

GArray *kept_new(void)
{
    GArray *all = g_array_new(false, false, sizeof(Kept));

    g_array_set_clear_func(all, kept_clear);
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
        return g_strdup_printf("'%s', which claims it, has rewind=off",
                               ram_reset_id(blk->owner));
    }
    return ram_reset_block_stranger(blk);
}

GArray *kept_find_content(const RamResetBlock *blk)
{
    GArray *ranges;
    uint64_t at = 0;
    bool told;

    if (!blk->known) {
        return ram_reset_find_data(blk, blk->backing, 0, blk->map.len, &told);
    }
    ranges = g_array_new(false, false, sizeof(RamResetRange));
    while (at < blk->map.len) {
        RamResetRange range = { .start = at };

        range.start += zeromap_run(blk->known, at, blk->map.len - at);
        range.end = range.start + zeromap_gap(blk->known, range.start,
                                              blk->map.len - range.start);
        if (range.start < range.end) {
            g_array_append_val(ranges, range);
        }
        at = range.end;
    }
    return ranges;
}

/* Host pages and target pages need not be the same, nor of one size */
static void keep_range(Kept *kept, RamResetRange range)
{
    uint64_t page = qemu_target_page_size();

    template_keep(kept->template, kept->host,
                  QEMU_ALIGN_DOWN(range.start, page),
                  MIN(QEMU_ALIGN_UP(range.end, page), kept->len));
}

/* False with @errp set if that exceeds the limit */
static bool keep_content(Kept *kept, const RamResetBlock *blk, uint64_t limit,
                         uint64_t *size, Error **errp)
{
    g_autoptr(GArray) content = kept_find_content(blk);

    for (unsigned i = 0; i < content->len; i++) {
        RamResetRange range = g_array_index(content, RamResetRange, i);
        uint64_t len;

        for (; range.start < range.end; range.start += len) {
            len = MIN(RAM_RESET_CHUNK, range.end - range.start);
            keep_range(kept, (RamResetRange) { range.start,
                                               range.start + len });
            if (*size + template_size(kept->template) > limit) {
                error_setg(errp, "the snapshot has more than "
                           "rewind-limit=%" PRIu64 " bytes that are not zero",
                           limit);
                return false;
            }
        }
    }
    *size += template_size(kept->template);
    return true;
}

static RamTemplate *new_template(const RamResetBlock *blk,
                                 const TemplateFile *file)
{
    return file ? template_of_file(file, ram_reset_template_block(
                                             file, blk->rb->idstr))
                : template_new(blk->map.len, qemu_target_page_size());
}

bool kept_add(GArray *all, const RamResetBlock *blk, const TemplateFile *file,
              bool ignored, uint64_t limit, uint64_t *size, Error **errp)
{
    Kept kept = {
        .rb = blk->rb,
        .host = blk->map.host,
        .len = blk->map.len,
        .owner = blk->owner,
        .compared = is_devices_own(blk->rb),
    };
    g_autofree char *blind = ignored ? NULL : blind_spot(blk);

    if (blind) {
        error_setg(errp, "RAM block '%s': %s", blk->rb->idstr, blind);
        return false;
    }
    if (!ignored && kept.len) {
        kept.template = new_template(blk, file);
        if (!kept.template) {
            error_setg_errno(errp, errno, "RAM block '%s': no memory for a "
                             "copy", blk->rb->idstr);
            return false;
        }
    }
    g_array_append_val(all, kept);
    if (kept.template && file) {
        *size += template_size(kept.template);
        return true;
    }
    return !kept.template || keep_content(&kept, blk, limit, size, errp);
}
