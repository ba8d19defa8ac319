/*
 * RAM reset: what is going on, for those who must not take time to ask
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "system/ram-reset-flags.h"

RamResetFlags ram_reset_flags;
