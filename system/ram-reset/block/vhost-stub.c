/*
 * RAM reset: a QEMU without virtio, and so without vhost
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "system/ram-reset-load.h"
#include "system/ram-reset/block/vhost.h"

void ram_reset_watch_vhost(void)
{
}

bool ram_reset_vhost_is_busy(void)
{
    return false;
}

const char *ram_reset_load_refusal(void)
{
    return NULL;
}

RamResetBlockerId ram_reset_vhost_unlogged(void)
{
    return RAM_RESET_BLOCKER__MAX;
}

void ram_reset_vhost_restart_log(void)
{
}
