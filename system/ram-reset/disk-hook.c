/*
 * RAM reset: what block/snapshot.c calls, which is in qemu-img as well
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "system/ram-reset-disks.h"

bool (*ram_reset_keeps_disk_cb)(BlockDriverState *bs);
bool ram_reset_disk_changed;
