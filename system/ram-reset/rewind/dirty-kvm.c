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
 * QEMU requests KVM_DIRTY_LOG_INITIALLY_SET: all pages of a slot that is made
 * while the log is on are dirty at first.  A device that remaps memory makes
 * slots, as the load of a chipset's state does.  So the setting is off while a
 * load remaps memory.  While vCPUs run it must be on: it covers their writes
 * between the last read of a slot's log and the removal of the slot.  If KVM
 * refuses a change, all pages are dirty, which only costs time.
 *
 * KVM also uses the setting when bits are cleared.  If it is off, KVM assumes
 * that it protected large pages when the log was turned on.  A slot whose log
 * was turned on with the setting would have large pages that are writable
 * without a log for ever.  So the setting must be on when RAM reset or savevm
 * clears bits.
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
 * Nobody reads the entries that are left in the ring.  KVM does not protect
 * their pages again, so other vCPUs write to them without a log.  If the vCPU
 * is plugged again, QEMU reads its ring from the start, but KVM continues where
 * it was.
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
    /* The generation counts vCPUs that were added or removed */
    return cpu_list_generation_id_get() > added;
}
