/*
 * RAM reset: the log of pages that have been written to
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qapi/error.h"
#include "qemu/bitmap.h"
#include "qemu/host-utils.h"
#include "qemu/rcu.h"
#include "system/ram-reset.h"
#include "system/ram-reset-compat-dirty.h"
#include "system/ram-reset-rewind.h"
#include "system/ram-reset/prim/prim.h"
#include "system/ram-reset/rewind/dirty-kvm.h"
#include "system/ram-reset/rewind/dirty-log.h"

QEMU_BUILD_BUG_ON(GLOBAL_DIRTY_MASK & GLOBAL_DIRTY_RAM_RESET);

void ram_reset_slots_change(bool change)
{
    if (ram_reset_flags.tracking) {
        dirty_kvm_initially_set(!change);
    }
}

bool ram_reset_dirty_start(Error **errp)
{
    bool ok;

    dirty_kvm_initially_set(false);
    ok = memory_global_dirty_log_start(GLOBAL_DIRTY_RAM_RESET, errp);
    dirty_kvm_initially_set(true);
    return ok;
}

bool ram_reset_dirty_log_is_on(void)
{
    return global_dirty_tracking;
}

void ram_reset_dirty_stop(void)
{
    dirty_kvm_initially_set(true);
    memory_global_dirty_log_stop(GLOBAL_DIRTY_RAM_RESET);
}

void ram_reset_dirty_renotify(RAMBlock *rb)
{
    /* Any change of a log mask notifies listeners of all memory */
    memory_region_transaction_begin();
    memory_region_set_log(rb->mr, true, DIRTY_MEMORY_VGA);
    memory_region_set_log(rb->mr, false, DIRTY_MEMORY_VGA);
    memory_region_transaction_commit();
}

void ram_reset_dirty_sync(void)
{
    /* true: the last sync, nobody writes any more */
    memory_global_dirty_log_sync(true);
}

bool ram_reset_dirty_begin_fetch(void)
{
    return dirty_kvm_initially_set(true);
}

void ram_reset_dirty_end_fetch(bool before)
{
    dirty_kvm_initially_set(before);
}

/* A block starts at a word of the bitmap, see find_ram_offset() */
void ram_reset_dirty_read(RAMBlock *rb, unsigned long *bits)
{
    unsigned long first = rb->offset >> TARGET_PAGE_BITS;
    unsigned long nr = rb->used_length >> TARGET_PAGE_BITS;
    unsigned long done, n;
    DirtyMemoryBlocks *blocks;

    assert(first % BITS_PER_LONG == 0);
    RCU_READ_LOCK_GUARD();
    blocks = qatomic_rcu_read(&ram_list.dirty_memory[DIRTY_MEMORY_MIGRATION]);
    for (done = 0; done < nr; done += n) {
        unsigned long at = (first + done) % DIRTY_MEMORY_BLOCK_SIZE;
        unsigned long *from =
            blocks->blocks[(first + done) / DIRTY_MEMORY_BLOCK_SIZE];

        n = MIN(nr - done, DIRTY_MEMORY_BLOCK_SIZE - at);
        bitmap_copy(bits + BIT_WORD(done), from + BIT_WORD(at), n);
    }
    if (nr % BITS_PER_LONG) {
        bits[BIT_WORD(nr)] &= BITMAP_LAST_WORD_MASK(nr);
    }
}

/*
 * Sets @range to the words from the first set page to the last; returns the
 * number of set pages
 */
static uint64_t find_set(const unsigned long *bits, uint64_t nr,
                         PrimRange *range)
{
    size_t first = SIZE_MAX, last = 0;
    uint64_t sum = 0;

    for (size_t w = 0; w < BITS_TO_LONGS(nr); w++) {
        if (unlikely(bits[w])) {
            sum += ctpopl(bits[w]);
            first = MIN(first, w);
            last = w;
        }
    }
    if (sum) {
        range->start = first * BITS_PER_LONG;
        range->len = MIN((last + 1) * BITS_PER_LONG, nr) - range->start;
    }
    return sum;
}

uint64_t ram_reset_dirty_fetch(RAMBlock *rb, unsigned long *bits,
                               const unsigned long *untracked)
{
    PrimRange range = { 0 };
    uint64_t nr;

    ram_reset_dirty_read(rb, bits);
    nr = find_set(bits, rb->used_length >> TARGET_PAGE_BITS, &range);
    /* A measurement of the dirty rate clears slots' logs in its own thread */
    if (nr && untracked && !(global_dirty_tracking & GLOBAL_DIRTY_DIRTY_RATE)) {
        dirty_kvm_spare(rb, untracked);
    }
    if (nr) {
        ram_reset_clear_dirty(rb->offset + (range.start << TARGET_PAGE_BITS),
                              range.len << TARGET_PAGE_BITS,
                              DIRTY_MEMORY_MIGRATION);
    }
    /*
     * Needed even if no bit was set: an earlier savevm may have cleared bits
     * without notifying TCG, see physical_memory_sync_dirty_bitmap()
     */
    physical_memory_dirty_bits_cleared(rb->offset, rb->used_length);
    return nr;
}

void ram_reset_dirty_redraw(RAMBlock *rb)
{
    unsigned vga = 1 << DIRTY_MEMORY_VGA;

    if (memory_region_get_dirty_log_mask(rb->mr) & vga) {
        physical_memory_set_dirty_range(rb->offset, rb->used_length, vga);
    }
}

/* The dirty log is not notified of such a change */
void ram_reset_do_will_change(RAMBlock *rb, uint64_t start, uint64_t len)
{
    physical_memory_set_dirty_range(rb->offset + start, len,
                                    1 << DIRTY_MEMORY_MIGRATION);
}
