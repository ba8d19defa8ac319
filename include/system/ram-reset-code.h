/*
 * RAM reset: code that TCG has translated, and a load keeps
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef SYSTEM_RAM_RESET_CODE_H
#define SYSTEM_RAM_RESET_CODE_H

/**
 * ram_reset_keeps_code: tb-maint.c is going to flush all translated code.  If
 * that is for a load, RAM reset knows better what need not be.
 *
 * Returns: true if nothing is to be flushed now: it will be if it must, before
 *     any vCPU runs
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
