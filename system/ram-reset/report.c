/*
 * RAM reset: what is said in the name of an object
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qapi/error.h"
#include "qemu/error-report.h"
#include "system/ram-reset/report.h"

#define PREFIX "%s '%s': "

static const char *type_of(RamReset *rr)
{
    return object_get_typename(OBJECT(rr));
}

void ram_reset_error(RamReset *rr, Error **errp, const char *fmt, ...)
{
    g_autofree char *text = NULL;
    va_list ap;

    va_start(ap, fmt);
    text = g_strdup_vprintf(fmt, ap);
    va_end(ap);
    error_setg(errp, PREFIX "%s", type_of(rr), ram_reset_id(rr), text);
}

void ram_reset_error_prepend(RamReset *rr, Error **errp)
{
    error_prepend(errp, PREFIX, type_of(rr), ram_reset_id(rr));
}

void ram_reset_warn(RamReset *rr, const char *fmt, ...)
{
    g_autofree char *text = NULL;
    va_list ap;

    va_start(ap, fmt);
    text = g_strdup_vprintf(fmt, ap);
    va_end(ap);
    warn_report(PREFIX "%s", type_of(rr), ram_reset_id(rr), text);
}
