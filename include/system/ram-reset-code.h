/*
 * RAM reset: translated code of TCG that survives a load
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef SYSTEM_RAM_RESET_CODE_H
#define SYSTEM_RAM_RESET_CODE_H

/**
 * ram_reset_keeps_code: called when tb-maint.c is going to flush all translated
 * code.  In a load, RAM reset knows which code is still valid.
 *
 * Returns: true if nothing must be flushed now; RAM reset flushes later if it
 *     must, before any vCPU runs
 */
#ifdef CONFIG_USER_ONLY
static inline bool ram_reset_keeps_code(void)
{
    return false;
}
#else
bool ram_reset_keeps_code(void);
#endif

#endif
