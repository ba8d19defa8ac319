/*
 * RAM reset: flags for callers that cannot afford a function call
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "system/ram-reset-flags.h"

RamResetFlags ram_reset_flags;
