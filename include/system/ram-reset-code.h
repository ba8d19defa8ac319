/*
 * RAM reset: translated code of TCG that survives a load
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef SYSTEM_RAM_RESET_CODE_H
#define SYSTEM_RAM_RESET_CODE_H

/**
 * ram_reset_defers_tb_flush: whether RAM reset defers a flush of all translated
 * code by tb-maint.c.  In a load, RAM reset knows which code is still valid.
 *
 * Returns: true if QEMU must not flush now; RAM reset flushes later if needed,
 *     before any vCPU runs
 */
#ifdef CONFIG_USER_ONLY
static inline bool ram_reset_defers_tb_flush(void)
{
    return false;
}
#else
bool ram_reset_defers_tb_flush(void);
#endif

#endif
