/*
 * RAM reset: differences of TCG between releases of QEMU
 *
 * For code of one target only, see ram-reset-compat.h.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef SYSTEM_RAM_RESET_COMPAT_TCG_H
#define SYSTEM_RAM_RESET_COMPAT_TCG_H

#include "exec/tb-flush.h"
#include "system/ram-reset-compat.h"

/*
 * Before 10.2 a load flushes when each vCPU's state is loaded, or when vCPUs
 * run if there are several.  Since 10.2 it flushes when the VM is stopped for
 * the load, and not at all if the VM is stopped already.
 */
#define RAM_RESET_FLUSH_AT_STOP RAM_RESET_QEMU_SINCE(10, 2)

#if RAM_RESET_FLUSH_AT_STOP
#include "exec/translation-block.h"
#define ram_reset_tb_flush() tb_flush__exclusive_or_serial()
#define ram_reset_tb_invalidate(start, last) \
    tb_invalidate_phys_range(NULL, start, last)
#else
#include "exec/exec-all.h"
#define ram_reset_tb_flush() tb_flush(first_cpu)
#define ram_reset_tb_invalidate(start, last) \
    tb_invalidate_phys_range(start, last)
#endif

#endif
