/*
 * snapctl: stubs for a QEMU without the device
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qapi/qapi-commands-snapctl.h"

SnapctlInfo *qmp_query_snapctl(Error **errp)
{
    SnapctlInfo *info = g_new0(SnapctlInfo, 1);

    info->qom_path = g_strdup("");
    return info;
}
