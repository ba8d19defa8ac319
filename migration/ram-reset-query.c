/*
 * QMP commands for RAM reset
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qapi/qapi-commands-ram-reset.h"
#include "migration/ram-reset.h"
#include "system/ram-reset-load.h"

RamResetInfo *qmp_query_ram_reset(Error **errp)
{
    RamResetInfo *info = g_new0(RamResetInfo, 1);

    info->objects = ram_reset_query_objects();
    info->fallbacks = ram_reset_fallbacks();
    ram_reset_query_loads(info);
    return info;
}
