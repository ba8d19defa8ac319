/*
 * RAM reset: what the parts of system/ram-reset share
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef RAM_RESET_INTERNAL_H
#define RAM_RESET_INTERNAL_H

#include "system/ram-reset-load.h"
#include "system/ram-reset/block/block.h"
#include "system/ram-reset/block/threads.h"
#include "system/ram-reset/options.h"

#endif
