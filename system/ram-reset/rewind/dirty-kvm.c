/*
 * RAM reset: KVM's part of the dirty log
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/bitmap.h"
#include "hw/core/cpu.h"
#include "system/ram-reset-compat.h"
#include "system/kvm.h"
#ifdef CONFIG_KVM
#include "system/kvm_int.h"
#include <linux/kvm.h>
#endif
#include "system/ram-reset/rewind/dirty-kvm.h"

/*
 * With KVM_DIRTY_LOG_INITIALLY_SET, which QEMU asks for, each slot that is made
 * while the log is on is all dirty at first, and slots are made anew when a
 * device remaps memory, as the load of a chipset's state does.  We do without
 * as long as a load does that.  While vCPUs run, it makes good for what they
 * write between the last look at a slot's log and the slot's removal.
 * A refusal does no harm but that all is dirty.
 *
 * KVM goes by it as well when bits are cleared: without, it takes it that large
 * pages were protected when the log was turned on.  A slot whose log was turned
 * on with it would have large pages that can be written to unnoticed for ever.
 * So whoever clears bits has to do that with it, we and savevm.
 */
bool dirty_kvm_initially_set(bool set)
{
    static bool initially_set = true;
    bool before = initially_set;

    initially_set = set;
#ifdef CONFIG_KVM
    if (set != before && kvm_enabled() && !kvm_dirty_ring_enabled() &&
        kvm_state->manual_dirty_log_protect & KVM_DIRTY_LOG_INITIALLY_SET) {
        kvm_vm_enable_cap(kvm_state, KVM_CAP_MANUAL_DIRTY_LOG_PROTECT2, 0,
                          set ? kvm_state->manual_dirty_log_protect
                              : KVM_DIRTY_LOG_MANUAL_PROTECT_ENABLE);
    }
#endif
    return before;
}

#ifdef CONFIG_KVM
/* KVM's bitmap is little-endian on all hosts, so we clear bits of bytes */
static void spare_in_slot(KVMSlot *slot, RAMBlock *rb,
                          const unsigned long *untracked)
{
    uint64_t page = qemu_real_host_page_size();
    uint64_t start = MAX(slot->ram_start_offset, rb->offset);
    uint64_t end = MIN(slot->ram_start_offset + slot->memory_size,
                       rb->offset + rb->used_length);
    uint64_t first = (start - rb->offset) / page;
    uint64_t last = first + (end - start) / page;
    uint8_t *dirty = (uint8_t *)slot->dirty_bmap;

    if (!slot->memory_size || !dirty || start >= end) {
        return;
    }
    for (uint64_t i = find_next_bit(untracked, last, first); i < last;
         i = find_next_bit(untracked, last, i + 1)) {
        uint64_t bit = (start - slot->ram_start_offset) / page + i - first;

        dirty[bit / 8] &= ~(1 << bit % 8);
    }
}

void dirty_kvm_spare(RAMBlock *rb, const unsigned long *untracked)
{
    if (!kvm_enabled() || kvm_dirty_ring_enabled() ||
        !kvm_state->manual_dirty_log_protect ||
        qemu_real_host_page_size() != qemu_target_page_size()) {
        return;
    }
    for (int i = 0; i < kvm_state->nr_as; i++) {
        KVMMemoryListener *kml = kvm_state->as[i].ml;

        for (unsigned n = 0; kml && n < kml->nr_slots_allocated; n++) {
            spare_in_slot(&kml->slots[n], rb, untracked);
        }
    }
}
#else
void dirty_kvm_spare(RAMBlock *rb, const unsigned long *untracked)
{
}
#endif

/*
 * Nobody reads what is left in it; KVM does not protect those pages again, so
 * that others write to them unnoticed; and if the vCPU is plugged again, QEMU
 * looks at its ring from the beginning, and KVM goes on where it was.
 */
bool dirty_kvm_lost_ring(void)
{
    unsigned added = 0;
    CPUState *cpu;

    if (!kvm_enabled() || !kvm_dirty_ring_enabled()) {
        return false;
    }
    CPU_FOREACH(cpu) {
        added++;
    }
    /* One for each that was added or removed */
    return cpu_list_generation_id_get() > added;
}
