/*
 * RAM reset: record the present RAM as a point
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/bitmap.h"
#include "qemu/cutils.h"
#include "system/ram-reset/block/find-data.h"
#include "system/ram-reset/rewind/baseline.h"
#include "system/ram-reset/rewind/changes.h"
#include "system/ram-reset/rewind/dirty-log.h"
#include "system/ram-reset/rewind/record.h"
#include "system/ram-reset/rewind/watch.h"

/* To find the pages that have memory pays for so many pages */
#define MANY_PAGES 4096

typedef struct RecordJob {
    const BaselineBlock *base;
    PageTree *tree;
    uint64_t limit;
    RamResetMakeRoom *make_room;
} RecordJob;

/* PAGE_NO_MEMORY also if the limit leaves no room */
static PageRef record_put(const RecordJob *job, const uint8_t *content)
{
    while (points_size() + qemu_target_page_size() > job->limit) {
        if (!job->make_room || !job->make_room()) {
            return PAGE_NO_MEMORY;
        }
    }
    return page_pool_put(points_pool(), content);
}

/* @zero: the page is zero, and reading it might populate it */
static PageRef record_content(const RecordJob *job, uint64_t page, bool zero)
{
    size_t size = qemu_target_page_size();
    const BaselineBlock *base = job->base;
    const uint8_t *content = base->host + page * size;

    if (zero) {
        return test_bit(page, ram_copy_stored(base->copy)) ? PAGE_ZERO
                                                           : PAGE_AS_BASE;
    }
    /* To store a page costs less than to read another one to compare it */
    if (!ram_copy_is_unread(base->copy, page) &&
        ram_copy_equals(base->copy, base->host, page)) {
        return PAGE_AS_BASE;
    }
    return buffer_is_zero(content, size) ? PAGE_ZERO
                                         : record_put(job, content);
}

static bool record_page(const RecordJob *job, uint64_t page, bool zero)
{
    size_t size = qemu_target_page_size();
    PageRef old = page_tree_get(job->tree, page), now;

    if (!zero && page_ref_stored(old) &&
        !memcmp(page_pool_page(points_pool(), old),
                job->base->host + page * size, size)) {
        return true;
    }
    now = record_content(job, page, zero);
    return now != PAGE_NO_MEMORY &&
           (now == old || page_tree_set(job->tree, page, now));
}

/* @zeros: pages that are zero; NULL if none are known to be */
static bool record_pages(const RecordJob *job, const unsigned long *bits,
                         const unsigned long *zeros)
{
    uint64_t pages = job->base->len / qemu_target_page_size();

    for (uint64_t page = find_first_bit(bits, pages); page < pages;
         page = find_next_bit(bits, pages, page + 1)) {
        if (!record_page(job, page, zeros && test_bit(page, zeros))) {
            return false;
        }
    }
    return true;
}

/* Pages outside of @content are zero; only copy and tree may differ there */
static bool record_whole_block(const RamResetBlock *blk, const RecordJob *job)
{
    uint64_t pages = job->base->len / qemu_target_page_size();
    g_autofree unsigned long *content = ram_reset_find_content_bits(blk);
    g_autofree unsigned long *zeros = bitmap_new(pages);
    g_autofree unsigned long *bits = bitmap_new(pages);

    bitmap_complement(zeros, content, pages);
    bitmap_or(bits, content, ram_copy_stored(job->base->copy), pages);
    page_tree_diff(NULL, job->tree, bits);
    return record_pages(job, bits, zeros);
}

/*
 * To read an absent page of shared memory would populate it.  Such pages are
 * dirty if KVM has made a slot for them, or the guest has discarded them.
 */
static bool record_changes(const RamResetBlock *blk, const RecordJob *job,
                           const unsigned long *bits)
{
    uint64_t pages = job->base->len / qemu_target_page_size();
    g_autofree unsigned long *zeros = NULL;

    if (bitmap_count_one(bits, pages) > MIN(pages / 4, MANY_PAGES)) {
        g_autofree unsigned long *content = ram_reset_find_content_bits(blk);

        zeros = bitmap_new(pages);
        bitmap_complement(zeros, content, pages);
    }
    return record_pages(job, bits, zeros);
}

static bool record_block(const RamResetBlock *blk, BaselineBlock *base,
                         const RecordJob *job, bool whole)
{
    uint64_t pages = base->len / qemu_target_page_size();
    g_autofree unsigned long *bits = bitmap_new(pages);
    bool known = changes_fetch(base, bits);
    bool ok = whole || !known ? record_whole_block(blk, job)
                              : record_changes(blk, job, bits);

    if (base->watched) {
        watch_restart(base, NULL);
    }
    return ok;
}

bool record_all(RamResetBlockList *list, GArray *baseline, RewindPoint *p,
                bool whole, uint64_t limit, RamResetMakeRoom *make_room)
{
    bool before = ram_reset_dirty_begin_fetch(), ok = true;

    for (unsigned i = 0; i < list->nr && ok; i++) {
        BaselineBlock *base = &g_array_index(baseline, BaselineBlock, i);
        RecordJob job = {
            .base = base, .tree = p->trees[i],
            .limit = limit, .make_room = make_room,
        };

        ok = !base->copy || record_block(&list->blocks[i], base, &job, whole);
    }
    ram_reset_dirty_end_fetch(before);
    return ok;
}
