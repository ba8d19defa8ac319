/*
 * RAM reset: translated code of TCG in a rewind
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/bitmap.h"
#include "qemu/host-utils.h"
#include "qemu/main-loop.h"
#include "qemu/rcu.h"
#include "hw/core/cpu.h"
#include "hw/virtio/vhost.h"
#include "system/ram-reset-code.h"
#include "system/ram-reset-compat-dirty.h"
#include "system/ram-reset-compat-tcg.h"
#include "system/ram-reset-rewind.h"
#include "system/replay.h"
#include "system/runstate.h"
#include "system/tcg.h"
#include "system/tpm.h"
#include "system/ram-reset/machine/translated.h"
#include "system/ram-reset/trace.h"

/*
 * @exact: all code was translated after a flush, and each write since then is
 *     in the dirty log, or has dropped its code
 * @deferring: a rewind defers flushes
 * @owed: QEMU has not flushed when it stopped the VM for a load, and no load
 *     has done so since
 * @dropping: drop_all() flushes, so ram_reset_defers_tb_flush() is false
 */
static struct {
    bool exact, deferring, owed, dropping;
} translated;

#if defined(CONFIG_TCG) && !RAM_RESET_FLUSH_AT_STOP
/* vCPUs are stopped, so a flush need not wait until they run */
static void flush_at_once(bool begin)
{
    static uint32_t parallel;
    CPUState *cpu;

    if (begin) {
        parallel = first_cpu->tcg_cflags & CF_PARALLEL;
    }
    CPU_FOREACH(cpu) {
        cpu->tcg_cflags = begin ? cpu->tcg_cflags & ~CF_PARALLEL
                                : cpu->tcg_cflags | parallel;
    }
    if (!begin) {
        parallel = 0;
    }
}
#else
static void flush_at_once(bool begin)
{
}
#endif

#if defined(CONFIG_TCG) && RAM_RESET_FLUSH_AT_STOP
/* Each vCPU does its queued work before it runs; the first one flushes */
static void drop_owed(void *opaque, bool running, RunState state)
{
    CPUState *cpu;

    if (running && translated.owed) {
        translated.owed = false;
        CPU_FOREACH(cpu) {
            queue_tb_flush(cpu);
        }
    }
}

static bool defer_for_load(void)
{
    static VMChangeStateEntry *handler;

    if (replay_mode != REPLAY_MODE_NONE ||
        !runstate_check(RUN_STATE_RESTORE_VM)) {
        return false;
    }
    if (!handler) {
        handler = qemu_add_vm_change_state_handler(drop_owed, NULL);
    }
    translated.owed = true;
    return true;
}
#else
static bool defer_for_load(void)
{
    return false;
}
#endif

bool ram_reset_defers_tb_flush(void)
{
    /* A vCPU without the BQL flushes when there is no room for more code */
    return bql_locked() && !translated.dropping &&
           (translated.deferring || defer_for_load());
}

/*
 * If there is a TPM, firmware may clear memory; vhost devices log writes.  Both
 * mark pages as pages without code, but do not drop the code.  Check this at
 * each rewind: devices come and go, and @exact may be set outside of a rewind.
 */
static bool has_unlogged_writer(void)
{
    bool tpm = false;

#if defined(TARGET_RISCV) && !RAM_RESET_FLUSH_AT_STOP
    /* Translated code depends on misa, which its key lacks */
    return true;
#endif
#ifdef CONFIG_TPM
    tpm = tpm_find();
#endif
    return tpm || replay_mode != REPLAY_MODE_NONE ||
           vhost_get_max_memslots() != UINT_MAX;
}

static void drop_all(void)
{
    trace_ram_reset_drop_all_code();
    translated.deferring = translated.owed = false;
#ifdef CONFIG_TCG
    translated.dropping = true;
    ram_reset_tb_flush();
    translated.dropping = false;
#endif
    translated.exact = true;
}

void translated_defer_flush(void)
{
    if (!tcg_enabled() || !first_cpu) {
        return;
    }
    assert(!translated.deferring);
    flush_at_once(true);
    if (has_unlogged_writer()) {
        return;
    }
    if (!translated.exact) {
        drop_all();
    }
    translated.deferring = true;
}

void ram_reset_code_finish(bool valid, bool loaded)
{
    bool deferred = translated.deferring;

    if (!tcg_enabled() || !first_cpu) {
        return;
    }
    translated.deferring = false;
    if (valid && deferred) {
        translated.owed = false;
        trace_ram_reset_skip_tb_flush();
    } else if (deferred || !loaded || RAM_RESET_FLUSH_AT_STOP) {
        drop_all();
    }
    if (!deferred) {
        /* An unlogged writer may be gone at the next rewind */
        translated.exact = false;
    }
    flush_at_once(false);
}

void translated_restart(void)
{
    translated.exact = false;
}

/*
 * Returns a bit for each of the 64 pages from @page on, the first of a word of
 * the bitmap.  Only a hint: memory_region_set_dirty() marks pages with code as
 * pages without code.
 */
static unsigned long may_have_code(const DirtyMemoryBlocks *blocks,
                                   unsigned long page)
{
    unsigned long *clean = blocks->blocks[page / DIRTY_MEMORY_BLOCK_SIZE];

    return ~qatomic_read(&clean[BIT_WORD(page % DIRTY_MEMORY_BLOCK_SIZE)]);
}

static unsigned count_known(uint64_t first, uint64_t nr,
                            const unsigned long *pages)
{
    DirtyMemoryBlocks *blocks;
    unsigned sum = 0;

    assert(first % BITS_PER_LONG == 0);
    RCU_READ_LOCK_GUARD();
    blocks = qatomic_rcu_read(&ram_list.dirty_memory[DIRTY_MEMORY_CODE]);
    for (uint64_t at = 0; at < nr; at += BITS_PER_LONG) {
        unsigned long here = pages ? pages[BIT_WORD(at)] : ~0ul;

        if (nr - at < BITS_PER_LONG) {
            here &= BITMAP_LAST_WORD_MASK(nr);
        }
        if (here) {
            sum += ctpopl(here & may_have_code(blocks, first + at));
        }
    }
    return sum;
}

/* QEMU does next to nothing for pages without code */
static void drop_run(uint64_t first, uint64_t nr)
{
#ifdef CONFIG_TCG
    ram_reset_tb_invalidate(first << TARGET_PAGE_BITS,
                            ((first + nr) << TARGET_PAGE_BITS) - 1);
#endif
}

void translated_drop(RAMBlock *rb, const unsigned long *pages)
{
    uint64_t first = rb->offset >> TARGET_PAGE_BITS;
    uint64_t nr = rb->used_length >> TARGET_PAGE_BITS;
    uint64_t start, end = 0;
    unsigned known;

    if (!translated.deferring || !nr) {
        return;
    }
    known = count_known(first, nr, pages);
    if (!pages) {
        drop_run(first, nr);
        end = nr;
    }
    while (end < nr && (start = find_next_bit(pages, nr, end)) < nr) {
        end = find_next_zero_bit(pages, nr, start);
        drop_run(first + start, end - start);
    }
    if (known) {
        trace_ram_reset_drop_code(rb->idstr, known);
    }
}
