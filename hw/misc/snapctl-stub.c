/*
 * snapctl: where the device is not built
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qapi/error.h"
#include "qapi/qapi-commands-snapctl.h"

SnapctlInfo *qmp_query_snapctl(Error **errp)
{
    error_set(errp, ERROR_CLASS_DEVICE_NOT_FOUND,
              "this QEMU has no snapctl device");
    return NULL;
}
