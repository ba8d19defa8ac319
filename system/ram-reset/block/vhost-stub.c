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

const char *ram_reset_vhost_busy(void)
{
    return NULL;
}

const char *ram_reset_load_refusal(void)
{
    return NULL;
}

const char *ram_reset_vhost_unseen(void)
{
    return NULL;
}

void ram_reset_vhost_begin_anew(void)
{
}
