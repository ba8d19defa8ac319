/*
 * RAM reset: differences of the dirty log between releases of QEMU
 *
 * For code of one target only, see ram-reset-compat.h.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef SYSTEM_RAM_RESET_COMPAT_DIRTY_H
#define SYSTEM_RAM_RESET_COMPAT_DIRTY_H

#include "system/ram-reset-compat.h"

#if RAM_RESET_QEMU_SINCE(10, 2)
#include "system/physmem.h"
#else
#if RAM_RESET_QEMU_SINCE(10, 1)
#include "system/ram_addr.h"
#else
#include "exec/ram_addr.h"
#endif
#define physical_memory_set_dirty_range cpu_physical_memory_set_dirty_range
#define physical_memory_dirty_bits_cleared \
    cpu_physical_memory_dirty_bits_cleared
#define physical_memory_test_and_clear_dirty \
    cpu_physical_memory_test_and_clear_dirty
#endif

/* Since 11.0 it counts the bits that it clears, and can note them */
#if RAM_RESET_QEMU_SINCE(11, 0)
#define ram_reset_clear_dirty(start, length, client) \
    physical_memory_test_and_clear_dirty(start, length, client, NULL)
#else
#define ram_reset_clear_dirty(start, length, client) \
    physical_memory_test_and_clear_dirty(start, length, client)
#endif

#endif
