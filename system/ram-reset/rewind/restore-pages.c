/*
 * RAM reset: restore pages of a block, in threads
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/bitmap.h"
#include "qemu/cutils.h"
#include "qemu/host-utils.h"
#include "qemu/lockable.h"
#include "system/ram-reset/block/block.h"
#include "system/ram-reset/block/threads.h"
#include "system/ram-reset/options.h"
#include "system/ram-reset/rewind/restore-pages.h"

/* Words of a bitmap that a thread fetches at a time */
#define WORDS_AT_ONCE   64
/* A thread does not pay for fewer dirty pages */
#define PAGES_A_THREAD  4096

/* Returns whether the page at @host was different, if that is asked for */
static bool restore_own_page(const RestoreJob *job, uint64_t page,
                             RamCopyCounts *counts)
{
    size_t size = qemu_target_page_size();
    uint8_t *host = job->base->host + page * size;
    PageRef ref = page_tree_get(job->tree, page);
    const uint8_t *content = page_ref_stored(ref)
                             ? page_pool_page(points_pool(), ref) : NULL;

    if (job->compare && (content ? !memcmp(host, content, size)
                                 : buffer_is_zero(host, size))) {
        return false;
    }
    if (content) {
        memcpy(host, content, size);
        counts->copied++;
    } else {
        memset(host, 0, size);
        counts->cleared++;
    }
    return true;
}

/* The pages of words [@first, @last) that the baseline does not have */
static void restore_own(const RestoreJob *job, size_t first, size_t last,
                        RamCopyCounts *counts)
{
    for (size_t w = first; w < last; w++) {
        unsigned long left = job->own[w] & (job->compare ? ~0ul : job->bits[w]);

        for (; left; left &= left - 1) {
            bool changed = restore_own_page(job, w * BITS_PER_LONG + ctzl(left),
                                            counts);

            if (job->compare) {
                counts->compared++;
                counts->dirty += changed;
                job->differing[w] |= changed ? left & -left : 0;
            }
        }
    }
}

/* @next: the first word that no thread has; @counts are under @lock */
static void *restore_worker(void *opaque)
{
    RestoreJob *job = opaque;
    RamCopy *t = job->base->copy;
    size_t words = ram_copy_words(t), first;
    RamCopyCounts counts = { 0 };

    while ((first = qatomic_fetch_add(&job->next, WORDS_AT_ONCE)) < words) {
        size_t last = MIN(first + WORDS_AT_ONCE, words);

        if (job->compare) {
            ram_copy_compare(t, job->base->host, job->bits, job->own, first,
                             last, job->differing, &counts);
        } else {
            ram_copy_restore(t, job->base->host, job->bits, job->own, first,
                             last, job->turn, job->leave_zeros, &counts);
        }
        if (job->own) {
            restore_own(job, first, last, &counts);
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

void restore_pages(RestoreJob *job, uint64_t pages)
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
