/*
 * RAM reset: the code that TCG has translated, when RAM is rewound
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
 * @exact: all that is translated is so since a flush, and what has been written
 *     since that is in the dirty log, or has dropped it
 * @held: by a rewind
 * @owed: QEMU has not flushed when it stopped the VM to load, and no load has
 *     made up for that
 * @dropping: all of it, whatever ram_reset_keeps_code() says
 */
static struct {
    bool exact, held, owed, dropping;
} translated;

#if defined(CONFIG_TCG) && !RAM_RESET_FLUSH_AT_STOP
/* vCPUs are stopped, so what would wait until they run can be done now */
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
/* Each vCPU does what is queued for it before it runs: who is first flushes */
static void drop_what_is_owed(void *opaque, bool running, RunState state)
{
    CPUState *cpu;

    if (running && translated.owed) {
        translated.owed = false;
        CPU_FOREACH(cpu) {
            queue_tb_flush(cpu);
        }
    }
}

static bool stopped_for_load(void)
{
    static VMChangeStateEntry *handler;

    if (replay_mode != REPLAY_MODE_NONE ||
        !runstate_check(RUN_STATE_RESTORE_VM)) {
        return false;
    }
    if (!handler) {
        handler = qemu_add_vm_change_state_handler(drop_what_is_owed, NULL);
    }
    translated.owed = true;
    return true;
}
#else
static bool stopped_for_load(void)
{
    return false;
}
#endif

bool ram_reset_keeps_code(void)
{
    /* vCPUs flush without the BQL, when there is no room for more */
    return bql_locked() && !translated.dropping &&
           (translated.held || stopped_for_load());
}

/*
 * What a TPM has the firmware clear is not dropped, but marked as if it had
 * been; what vhost devices log is, too.  Asked at each rewind: devices come and
 * go, and not only a rewind begins what is exact.
 */
static bool writes_unseen(void)
{
    bool tpm = false;

#if defined(TARGET_RISCV) && !RAM_RESET_FLUSH_AT_STOP
    /* Here it depends on misa, of which the code's key knows nothing */
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
    translated.held = translated.owed = false;
#ifdef CONFIG_TCG
    translated.dropping = true;
    ram_reset_tb_flush();
    translated.dropping = false;
#endif
    translated.exact = true;
}

void translated_hold(void)
{
    if (!tcg_enabled() || !first_cpu) {
        return;
    }
    assert(!translated.held);
    flush_at_once(true);
    if (writes_unseen()) {
        return;
    }
    if (!translated.exact) {
        drop_all();
    }
    translated.held = true;
}

void ram_reset_code_release(bool kept, bool loaded)
{
    bool held = translated.held;

    if (!tcg_enabled() || !first_cpu) {
        return;
    }
    translated.held = false;
    if (kept && held) {
        translated.owed = false;
        trace_ram_reset_keep_code();
    } else if (held || !loaded || RAM_RESET_FLUSH_AT_STOP) {
        drop_all();
    }
    if (!held) {
        /* Whoever wrote unseen may be gone when the next one begins */
        translated.exact = false;
    }
    flush_at_once(false);
}

void translated_begin_anew(void)
{
    translated.exact = false;
}

/*
 * Of 64 pages from @page on, one of which is the first that a word is for.  Only
 * a hint: memory_region_set_dirty() says of pages that have code that they have
 * none.
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

/* For pages without code QEMU does next to nothing */
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

    if (!translated.held || !nr) {
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
