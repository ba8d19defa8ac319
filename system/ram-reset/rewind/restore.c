/*
 * RAM reset: undo the changes of RAM since the baseline
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/bitmap.h"
#include "qemu/host-utils.h"
#include "qemu/lockable.h"
#include "qemu/timer.h"
#include "system/ram-reset/block/block.h"
#include "system/ram-reset/block/find-data.h"
#include "system/ram-reset/block/threads.h"
#include "system/ram-reset/machine/translated.h"
#include "system/ram-reset/options.h"
#include "system/ram-reset/reset.h"
#include "system/ram-reset/rewind/dirty-log.h"
#include "system/ram-reset/rewind/restore.h"
#include "system/ram-reset/rewind/watch.h"
#include "system/ram-reset/trace.h"

/* Words of a bitmap that a thread fetches at a time */
#define WORDS_AT_ONCE   64
/* A thread does not pay for fewer dirty pages */
#define PAGES_A_THREAD  4096
/* If more than a page in MANY_OF is dirty, find the pages that have memory */
#define MANY_OF         4

/*
 * @bits: the dirty pages; the present pages to @compare, NULL for all
 * @differing: set to the pages that differed, to @compare
 */
typedef struct RestoreJob {
    BaselineBlock *base;
    const unsigned long *bits;
    unsigned long *differing;
    bool compare, leave_zeros;
    unsigned turn;
    size_t next;                /* atomic: the first word that no thread has */
    QemuMutex lock;
    RamCopyCounts counts;       /* under @lock */
} RestoreJob;

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

static void *restore_worker(void *opaque)
{
    RestoreJob *job = opaque;
    RamCopy *t = job->base->copy;
    size_t words = ram_copy_words(t), first;
    RamCopyCounts counts = { 0 };

    while ((first = qatomic_fetch_add(&job->next, WORDS_AT_ONCE)) < words) {
        size_t last = MIN(first + WORDS_AT_ONCE, words);

        if (job->compare) {
            ram_copy_compare(t, job->base->host, job->bits, first, last,
                             job->differing, &counts);
        } else {
            ram_copy_restore(t, job->base->host, job->bits, first, last,
                             job->turn, job->leave_zeros, &counts);
        }
    }
    WITH_QEMU_LOCK_GUARD(&job->lock) {
        job->counts.dirty += counts.dirty;
        job->counts.copied += counts.copied;
        job->counts.cleared += counts.cleared;
        job->counts.cold += counts.cold;
        job->counts.stale += counts.stale;
        job->counts.untracked += counts.untracked;
        job->counts.compared += counts.compared;
    }
    return NULL;
}

/* @pages: number of pages to restore or to compare */
static void restore_pages(RestoreJob *job, uint64_t pages)
{
    RamReset *owner = job->base->owner;
    unsigned nr = DIV_ROUND_UP(pages, PAGES_A_THREAD);

    nr = owner && nr > 1 ? MIN(nr, ram_reset_threads(owner)) : 1;
    qemu_mutex_init(&job->lock);
    ram_reset_in_threads(nr, restore_worker, job);
    qemu_mutex_destroy(&job->lock);
    if (!job->compare) {
        job->base->untracked = job->counts.untracked;
    }
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
static void spare_absent(const RamResetBlock *blk, const BaselineBlock *base,
                         unsigned long *dirty)
{
    g_autofree unsigned long *present = ram_reset_find_present(blk);

    ram_copy_spare(base->copy, dirty, present);
}

/* Returns the number of faults that tracking has cost the guest */
static uint64_t restore_dirty(RamResetBlock *blk, BaselineBlock *base,
                              unsigned turn)
{
    uint64_t pages = base->len / qemu_target_page_size(), nr;
    g_autofree unsigned long *dirty = bitmap_new(pages);
    RestoreJob job = {
        .base = base, .bits = dirty, .turn = turn,
        .leave_zeros = discards_zeros(blk),
    };

    nr = ram_reset_dirty_fetch(base->rb, dirty, base->untracked
                               ? ram_copy_untracked(base->copy) : NULL);
    translated_drop(base->rb, dirty);
    if (nr > pages / MANY_OF) {
        spare_absent(blk, base, dirty);
        nr = count_set(dirty, pages);
    }
    restore_pages(&job, nr);
    restore_account(blk, base, &job, g_strdup("QEMU has undone all writes"));
    if (job.leave_zeros) {
        discard_zeros(blk, base, dirty);
    }
    blk->info->untracked_pages = base->untracked;
    return job.counts.cold;
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

/* Returns the number of pages that differ */
static uint64_t restore_differences(RamResetBlock *blk, BaselineBlock *base)
{
    uint64_t pages = base->len / qemu_target_page_size();
    bool rom = ram_reset_block_is_rom(blk->rb);
    g_autofree unsigned long *present = rom ? NULL
                                            : ram_reset_find_present(blk);
    g_autofree unsigned long *differing = bitmap_new(pages);
    RestoreJob job = {
        .base = base, .bits = present, .differing = differing, .compare = true,
    };

    if (present) {
        /* An absent page may have been discarded after its translation */
        bitmap_complement(differing, present, pages);
    }
    restore_pages(&job, present ? count_set(present, pages) : pages);
    drop_code(base, differing);
    restore_account(blk, base, &job, g_strdup_printf(
        "QEMU has compared the whole block with the snapshot: %s",
        base->unwatched ?: "tracking writes would slow the guest more"));
    return job.counts.dirty;
}

/* As restore_dirty(), but the kernel reports writes, and zeros stay */
static uint64_t restore_watched(RamResetBlock *blk, BaselineBlock *base,
                                unsigned turn)
{
    uint64_t pages = base->len / qemu_target_page_size();
    g_autofree unsigned long *written = bitmap_new(pages);
    RestoreJob job = { .base = base, .bits = written, .turn = turn };
    bool known;

    /* The dirty log has discarded pages: a balloon may have discarded some */
    ram_reset_dirty_fetch(base->rb, written, NULL);
    known = watch_fetch(base, written);
    translated_drop(base->rb, written);
    if (!known) {
        return restore_differences(blk, base);
    }
    restore_pages(&job, count_set(written, pages));
    restore_account(blk, base, &job,
                    g_strdup("QEMU has undone all writes; the kernel has "
                             "reported them"));
    bitmap_andnot(written, written, ram_copy_untracked(base->copy), pages);
    watch_restart(base, written);
    blk->info->untracked_pages = base->untracked;
    return job.counts.cold;
}

/* Returns the number of faults of the guest, see restore_all() */
static uint64_t restore_block(RamResetBlock *blk, BaselineBlock *base,
                              unsigned turn, bool track)
{
    if (!track || (base->compared && !base->watched)) {
        return restore_differences(blk, base);
    }
    return base->watched ? restore_watched(blk, base, turn)
                         : restore_dirty(blk, base, turn);
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

uint64_t restore_all(RamResetBlockList *list, GArray *baseline, unsigned turn,
                     bool track)
{
    bool before = ram_reset_dirty_begin_fetch();
    uint64_t sum = 0;

    assert(list->nr == baseline->len);
    for (unsigned i = 0; i < list->nr; i++) {
        RamResetBlock *blk = &list->blocks[i];
        BaselineBlock *base = &g_array_index(baseline, BaselineBlock, i);
        int64_t start = get_clock();

        assert(base->rb == blk->rb && base->len == blk->map.len);
        if (!base->copy) {
            translated_drop(base->rb, NULL);
            blk->info->reason = g_strdup(base->len ? "not part of the snapshot"
                                                 : "empty");
        } else {
            sum += restore_block(blk, base, turn, track);
        }
        blk->info->reset_ns = get_clock() - start;
    }
    ram_reset_dirty_end_fetch(before);
    drop_code_of_other_blocks();
    return sum;
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
