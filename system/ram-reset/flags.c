/*
 * RAM reset: what is going on, for those who must not take time to ask
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef RAM_RESET_STANDALONE
#include "qemu/osdep.h"
#endif
#include "system/ram-reset-flags.h"

RamResetFlags ram_reset_flags;
