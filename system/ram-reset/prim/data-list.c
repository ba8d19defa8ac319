/*
 * prim: a list of the ranges of a mapping that have data
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "system/ram-reset/prim/internal.h"

/* Offsets into the mapping, as prim_data_next() returns them */
typedef struct PrimDataList {
    size_t nr, room, at;
    struct {
        uint64_t start, end;
    } ranges[];
} PrimDataList;

bool prim_data_list_add(PrimDataIter *it, uint64_t start, uint64_t end)
{
    PrimDataList *l = it->list;

    if (!l || l->nr == l->room) {
        size_t room = l ? 2 * l->room : 1024;

        l = realloc(l, sizeof(*l) + room * sizeof(l->ranges[0]));
        if (!l) {
            return false;
        }
        if (!it->list) {
            l->nr = l->at = 0;
        }
        l->room = room;
        it->list = l;
    }
    l->ranges[l->nr].start = start;
    l->ranges[l->nr].end = end;
    l->nr++;
    return true;
}

bool prim_data_next_by_list(PrimDataIter *it, uint64_t *start, uint64_t *end)
{
    PrimDataList *l = it->list;

    while (l && l->at < l->nr && l->ranges[l->at].end <= it->pos) {
        l->at++;
    }
    if (!l || l->at == l->nr) {
        return false;
    }
    *start = l->ranges[l->at].start;
    *end = l->ranges[l->at].end;
    return true;
}
