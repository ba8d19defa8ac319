/*
 * RAM reset: undo the changes of RAM since the position
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/bitmap.h"
#include "qemu/host-utils.h"
#include "qemu/timer.h"
#include "system/ram-reset/block/block.h"
#include "system/ram-reset/block/find-data.h"
#include "system/ram-reset/machine/translated.h"
#include "system/ram-reset/options.h"
#include "system/ram-reset/reset.h"
#include "system/ram-reset/rewind/changes.h"
#include "system/ram-reset/rewind/dirty-log.h"
#include "system/ram-reset/rewind/restore-pages.h"
#include "system/ram-reset/rewind/restore.h"
#include "system/ram-reset/rewind/unread.h"
#include "system/ram-reset/rewind/watch.h"
#include "system/ram-reset/trace.h"

/* If more than a page in MANY_OF is dirty, find the pages that have memory */
#define MANY_OF         4

/* Few bits are set: bitmap_count_one() would take 4 to 5 times as long */
static uint64_t count_set(const unsigned long *bits, uint64_t pages)
{
    uint64_t sum = 0;

    for (size_t w = 0; w < BITS_TO_LONGS(pages); w++) {
        if (unlikely(bits[w])) {
            sum += ctpopl(bits[w]);
        }
    }
    return sum;
}

/* Whether zeros are discarded run by run: the object's strategy discards */
static bool discards_zeros(const RamResetBlock *blk)
{
    RamResetClass *rrc = blk->owner ? RAM_RESET_GET_CLASS(blk->owner) : NULL;

    return rrc && rrc->discards &&
           blk->map.page_size == qemu_target_page_size() &&
           rrc->supports(blk->owner, blk, NULL);
}

static void discard_zeros(RamResetBlock *blk, const BaselineBlock *base,
                          const unsigned long *dirty)
{
    RamResetClass *rrc = RAM_RESET_GET_CLASS(blk->owner);
    uint64_t start, end = 0;
    int failed = 0;

    while (ram_copy_zeros(base->copy, dirty, end, &start, &end)) {
        int ret = rrc->zero(blk->owner, blk, start, end - start);

        if (ret < 0) {
            failed = failed ?: ret;
            memset(base->host + start, 0, end - start);
            blk->info->zeroed_bytes += end - start;
            blk->info->cleared_pages += (end - start) / qemu_target_page_size();
        }
    }
    if (failed) {
        ram_reset_note_fallback(blk, ram_reset_strategy_name(rrc), failed);
    }
}

/* Takes ownership of @how */
static void restore_account(RamResetBlock *blk, const BaselineBlock *base,
                            const RestoreJob *job, char *how)
{
    const RamCopyCounts *c = &job->counts;
    uint64_t page = qemu_target_page_size();

    ram_reset_dirty_redraw(base->rb);
    blk->info->strategy = g_strdup("rewind");
    blk->info->reason = how;
    blk->info->dirty_pages = c->dirty;
    blk->info->copied_pages = c->copied;
    blk->info->skipped_pages = base->len / page - c->dirty;
    blk->info->compared_pages = c->compared;
    if (!job->leave_zeros) {
        blk->info->cleared_pages = c->cleared;
        blk->info->zeroed_bytes = c->cleared * page;
    }
    trace_ram_reset_rewind_block(blk->info->name, c->dirty, c->copied,
                                 c->cleared, c->stale);
}

/*
 * Clearing a page that the host has no memory for would allocate it.  Such
 * pages are dirty if KVM has made a slot for them, or the guest has discarded
 * them.
 */
static void spare_absent(const RamResetBlock *blk, const RestoreJob *job,
                         unsigned long *dirty)
{
    g_autofree unsigned long *present = ram_reset_find_present(blk);
    uint64_t pages = job->base->len / qemu_target_page_size();

    if (job->own) {
        bitmap_or(present, present, job->own, pages);
    }
    ram_copy_spare(job->base->copy, dirty, present);
}

/*
 * The pages of @bits that the baseline does not have in this content, to be
 * freed; NULL if there are none
 */
static unsigned long *find_own(const PageTree *tree, const unsigned long *bits,
                               uint64_t pages)
{
    unsigned long *own;

    if (page_tree_is_empty(tree)) {
        return NULL;
    }
    own = bitmap_new(pages);
    for (uint64_t page = find_first_bit(bits, pages); page < pages;
         page = find_next_bit(bits, pages, page + 1)) {
        if (page_tree_get(tree, page) != PAGE_AS_BASE) {
            set_bit(page, own);
        }
    }
    return own;
}

/*
 * A device may have written through a mapping without dropping code, and have
 * written the old content later.  The log has such pages; drop their code here.
 * The log may lack the writes of a device to its own memory: a flash writes
 * there when the guest programs it.
 */
static void drop_code(const BaselineBlock *base, unsigned long *differing)
{
    uint64_t pages = base->len / qemu_target_page_size();
    g_autofree unsigned long *logged = NULL;

    if (base->compared) {
        translated_drop(base->rb, NULL);
        return;
    }
    logged = bitmap_new(pages);
    ram_reset_dirty_read(base->rb, logged);
    bitmap_or(differing, differing, logged, pages);
    translated_drop(base->rb, differing);
}

/* Adds the number of pages that differ to @faults */
static bool restore_differences(RamResetBlock *blk, BaselineBlock *base,
                                const PageTree *to, uint64_t *faults,
                                Error **errp)
{
    uint64_t pages = base->len / qemu_target_page_size();
    bool rom = ram_reset_block_is_rom(blk->rb);
    g_autofree unsigned long *present = rom ? NULL
                                            : ram_reset_find_present(blk);
    g_autofree unsigned long *differing = bitmap_new(pages);
    g_autofree unsigned long *own = bitmap_new(pages);
    RestoreJob job = {
        .base = base, .tree = to, .bits = present, .own = own,
        .differing = differing, .compare = true,
    };

    page_tree_diff(NULL, to, own);
    if (!unread_read(base, NULL, own, errp)) {
        return false;
    }
    if (present) {
        /* An absent page may have been discarded after its translation */
        bitmap_complement(differing, present, pages);
    }
    restore_pages(&job, present ? count_set(present, pages) : pages);
    if (base->pending) {
        /* Their content may be as before, and their code may not */
        bitmap_or(differing, differing, base->pending, pages);
    }
    g_clear_pointer(&base->pending, g_free);
    drop_code(base, differing);
    restore_account(blk, base, &job, g_strdup_printf(
        "QEMU has compared the whole block with the snapshot: %s",
        base->unwatched ? base->unwatched : points_position()
        ? "tracking writes would slow the guest more"
        : "its writes have not been tracked"));
    *faults += job.counts.dirty;
    return true;
}

/* Adds the number of faults that tracking has cost the guest to @faults */
static bool restore_changes(RamResetBlock *blk, BaselineBlock *base,
                            const PageTree *from, const PageTree *to,
                            unsigned turn, uint64_t *faults, Error **errp)
{
    uint64_t pages = base->len / qemu_target_page_size(), nr, moved = 0;
    g_autofree unsigned long *dirty = bitmap_new(pages);
    g_autofree unsigned long *own = NULL;
    RestoreJob job = {
        .base = base, .tree = to, .bits = dirty, .turn = turn,
        .leave_zeros = !base->watched && discards_zeros(blk),
    };

    if (!changes_fetch(base, dirty)) {
        translated_drop(base->rb, dirty);
        return restore_differences(blk, base, to, faults, errp);
    }
    nr = count_set(dirty, pages);
    if (from != to) {
        page_tree_diff(from, to, dirty);
        moved = count_set(dirty, pages) - nr;
        nr += moved;
    }
    translated_drop(base->rb, dirty);
    job.own = own = find_own(to, dirty, pages);
    if (nr > pages / MANY_OF && !base->watched) {
        spare_absent(blk, &job, dirty);
        nr = count_set(dirty, pages);
    }
    if (!unread_read(base, dirty, own, errp)) {
        return false;
    }
    restore_pages(&job, nr);
    restore_account(blk, base, &job, g_strdup(base->watched
        ? "QEMU has undone all writes; the kernel has reported them"
        : "QEMU has undone all writes"));
    if (job.leave_zeros) {
        if (own) {
            bitmap_andnot(dirty, dirty, own, pages);
        }
        discard_zeros(blk, base, dirty);
    }
    if (base->watched) {
        bitmap_andnot(dirty, dirty, ram_copy_untracked(base->copy), pages);
        watch_restart(base, dirty);
    }
    blk->info->untracked_pages = base->untracked;
    /* The guest has not written to pages that only differ in the point */
    *faults += MAX(job.counts.cold, moved) - moved;
    return true;
}

/* The log lacks writes to these blocks */
static void drop_code_of_other_blocks(void)
{
    RAMBlock *rb;

    RCU_READ_LOCK_GUARD();
    RAMBLOCK_FOREACH(rb) {
        if (!qemu_ram_is_migratable(rb)) {
            translated_drop(rb, NULL);
        }
    }
}

bool restore_all(RamResetBlockList *list, GArray *baseline,
                 const RewindPoint *to, unsigned turn, bool track,
                 uint64_t *faults, Error **errp)
{
    const RewindPoint *from = points_position();
    bool before = ram_reset_dirty_begin_fetch(), ok = true;

    assert(list->nr == baseline->len && (from || !track));
    *faults = 0;
    for (unsigned i = 0; i < list->nr && ok; i++) {
        RamResetBlock *blk = &list->blocks[i];
        BaselineBlock *base = &g_array_index(baseline, BaselineBlock, i);
        int64_t start = get_clock();

        assert(base->rb == blk->rb && base->len == blk->map.len);
        if (!base->copy) {
            translated_drop(base->rb, NULL);
            blk->info->reason = g_strdup(base->len ? "not part of the snapshot"
                                                 : "empty");
        } else if (!track || (base->compared && !base->watched)) {
            ok = restore_differences(blk, base, to->trees[i], faults, errp);
        } else {
            ok = restore_changes(blk, base, from->trees[i], to->trees[i], turn,
                                 faults, errp);
        }
        blk->info->reset_ns = get_clock() - start;
    }
    ram_reset_dirty_end_fetch(before);
    drop_code_of_other_blocks();
    return ok;
}

uint64_t restore_count_present(const RamResetBlockList *list, unsigned *threads)
{
    uint64_t sum = 0;

    *threads = 1;
    for (unsigned i = 0; i < list->nr; i++) {
        RamResetBlock *blk = &list->blocks[i];

        if (blk->owner && blk->map.len) {
            uint64_t pages = blk->map.len / qemu_target_page_size();
            g_autofree unsigned long *present = ram_reset_find_present(blk);

            sum += count_set(present, pages);
            *threads = MAX(*threads, ram_reset_threads(blk->owner));
        }
    }
    return sum;
}
