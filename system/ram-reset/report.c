/*
 * RAM reset: the objects, as query-ram-reset shows them
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "system/ram-reset-load.h"
#include "system/ram-reset/report.h"

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
        info->unchanged_devices = !rr->load_unchanged;
        info->new_vmgenid = rr->new_vmgenid;
        info->threads = ram_reset_threads(rr);
        if (RAM_RESET_GET_CLASS(rr)->query) {
            RAM_RESET_GET_CLASS(rr)->query(rr, info);
        }
        QAPI_LIST_APPEND(tail, info);
    }
    return list;
}
