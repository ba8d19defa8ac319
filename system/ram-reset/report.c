/*
 * RAM reset: what is said in the name of an object
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qapi/error.h"
#include "qemu/error-report.h"
#include "system/ram-reset-load.h"
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

RamResetObjectInfoList *ram_reset_query_objects(void)
{
    g_autoptr(GPtrArray) objs = ram_reset_objects();
    RamResetObjectInfoList *list = NULL, **tail = &list;

    for (unsigned i = 0; i < objs->len; i++) {
        RamReset *rr = RAM_RESET(objs->pdata[i]);
        RamResetObjectInfo *info = g_new0(RamResetObjectInfo, 1);

        info->id = g_strdup(ram_reset_id(rr));
        info->qom_type = g_strdup(object_get_typename(OBJECT(rr)));
        info->memdev = g_strdup(rr->memdev);
        info->verify = rr->verify;
        info->rewind = rr->rewind;
        info->new_vmgenid = rr->new_vmgenid;
        info->threads = ram_reset_threads(rr);
        if (RAM_RESET_GET_CLASS(rr)->query) {
            RAM_RESET_GET_CLASS(rr)->query(rr, info);
        }
        QAPI_LIST_APPEND(tail, info);
    }
    return list;
}
