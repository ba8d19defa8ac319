/*
 * RAM reset: memory that devices have mapped for writing
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

/*
 * Devices write through a pointer, and the dirty log is notified when the
 * mapping ends, if at all: a cancelled request reports that it has written
 * nothing, AHCI leaves memory mapped across a reset, and xHCI does not unmap
 * cancelled transfers.  So with rewind=on each mapping is noted from its start
 * to its end.  All of it counts as changed at its end, and at each rewind.
 */

#include "qemu/osdep.h"
#include "qemu/lockable.h"
#include "qemu/main-loop.h"
#include "system/ram-reset-compat.h"
#include "system/ram-reset-flags.h"
#include "system/ram-reset.h"
#include "system/ram-reset/rewind/mappings.h"

/* Mappings with the same start: @count of them, the longest has @len bytes */
typedef struct Mapping {
    int64_t address;            /* in the space of all RAM blocks; the key */
    RAMBlock *rb;
    uint64_t start, len;
    unsigned count;
} Mapping;

/* A device that never unmaps must not fill QEMU's memory */
#define MAX_MAPPINGS 65536

static GHashTable *mappings;    /* under @lock */
static bool too_many;           /* atomic: some could not be noted */
static QemuMutex lock;

void mappings_note(bool on)
{
    assert(bql_locked());
    if (!mappings) {
        qemu_mutex_init(&lock);
        mappings = g_hash_table_new_full(g_int64_hash, g_int64_equal, NULL,
                                         g_free);
    }
    qatomic_set(&too_many, false);
    qatomic_set(&ram_reset_flags.noting, on);
    if (!on) {
        QEMU_LOCK_GUARD(&lock);
        g_hash_table_remove_all(mappings);
    }
}

static Mapping *mappings_find(RAMBlock *rb, uint64_t start)
{
    int64_t address = rb->offset + start;

    return g_hash_table_lookup(mappings, &address);
}

void ram_reset_do_dma_map(RAMBlock *rb, uint64_t start, uint64_t len)
{
    Mapping *m;

    QEMU_LOCK_GUARD(&lock);
    m = mappings_find(rb, start);
    if (!m && g_hash_table_size(mappings) == MAX_MAPPINGS) {
        qatomic_set(&too_many, true);
        return;
    }
    if (!m) {
        m = g_new0(Mapping, 1);
        m->address = rb->offset + start;
        m->rb = rb;
        m->start = start;
        g_hash_table_add(mappings, m);
    }
    m->len = MAX(m->len, len);
    m->count++;
}

uint64_t ram_reset_do_dma_unmap(RAMBlock *rb, uint64_t start, uint64_t len,
                                uint64_t access_len)
{
    Mapping *m;

    WITH_QEMU_LOCK_GUARD(&lock) {
        m = mappings_find(rb, start);
        if (m) {
            len = m->len;
            m->count--;
            if (!m->count) {
                g_hash_table_remove(mappings, &m->address);
            }
        }
    }
    return qatomic_read(&ram_reset_flags.tracking) ? len : access_len;
}

bool mappings_are_known(void)
{
    return !qatomic_read(&too_many);
}

void mappings_count_as_changed(void)
{
    GHashTableIter it;
    Mapping *m;

    QEMU_LOCK_GUARD(&lock);
    g_hash_table_iter_init(&it, mappings);
    while (g_hash_table_iter_next(&it, (void **)&m, NULL)) {
        ram_reset_do_will_change(m->rb, m->start, m->len);
    }
}
