/*
 * RAM reset: watch the writes to memory that belongs to devices
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/bitmap.h"
#include "system/ram-reset/prim/watch.h"
#include "system/ram-reset/rewind/watch.h"
#include "system/ram-reset/trace.h"

static PrimWatch watch;
static bool watching;           /* @watch is open */

/* A mapping has whole pages of the host */
static uint64_t mapped_len(const BaselineBlock *base)
{
    return ROUND_UP(base->len, qemu_real_host_page_size());
}

/* Whether QEMU's own mapping is the only way to write to @rb */
static bool is_only_mapping(RAMBlock *rb)
{
    return rb->fd < 0 && !qemu_ram_is_shared(rb) && !(rb->flags & RAM_PREALLOC);
}

static void watch_refuse(BaselineBlock *base, const char *what, int ret)
{
    g_free(base->unwatched);
    base->unwatched = ret ? g_strdup_printf("%s: %s", what, g_strerror(-ret))
                          : g_strdup(what);
    trace_ram_reset_unwatched(base->rb->idstr, base->unwatched);
}

static void watch_block(BaselineBlock *base, int opened)
{
    int ret = opened;

    if (!is_only_mapping(base->rb)) {
        watch_refuse(base, "it is shared, or not mapped by QEMU", 0);
        return;
    }
    if (!ret) {
        ret = prim_watch_add(&watch, base->host, mapped_len(base));
    }
    if (ret) {
        watch_refuse(base, "the kernel cannot report writes", ret);
    }
    base->watched = !ret;
}

void watch_begin(GArray *baseline)
{
    int ret = prim_watch_open(&watch);

    watching = !ret;
    for (unsigned i = 0; i < baseline->len; i++) {
        BaselineBlock *base = &g_array_index(baseline, BaselineBlock, i);

        if (base->compared && base->copy) {
            watch_block(base, ret);
        }
    }
}

void watch_end(GArray *baseline)
{
    for (unsigned i = 0; i < baseline->len; i++) {
        g_array_index(baseline, BaselineBlock, i).watched = false;
    }
    if (watching) {
        prim_watch_close(&watch);
        watching = false;
    }
}

static void watch_fail(BaselineBlock *base, int ret)
{
    watch_refuse(base, "the kernel has stopped reporting writes", ret);
    base->watched = false;
}

bool watch_fetch(BaselineBlock *base, unsigned long *bits)
{
    uint64_t page = qemu_target_page_size();
    uintptr_t host = (uintptr_t)base->host, start, end;
    PrimWatchIter it = { .next = host };
    int ret;

    while ((ret = prim_watch_next(&watch, &it, host + mapped_len(base), &start,
                                  &end)) > 0) {
        uint64_t first = (start - host) / page;
        uint64_t last = DIV_ROUND_UP(MIN(end - host, base->len), page);

        bitmap_set(bits, first, last - first);
    }
    if (ret) {
        watch_fail(base, ret);
    }
    return !ret;
}

/* Host pages and target pages may differ in size */
static int watch_restart_range(const BaselineBlock *base, uint64_t first,
                               uint64_t last)
{
    uint64_t page = qemu_target_page_size();
    uint64_t host_page = qemu_real_host_page_size();
    uint64_t start = QEMU_ALIGN_DOWN(first * page, host_page);
    uint64_t end = MIN(QEMU_ALIGN_UP(last * page, host_page),
                       mapped_len(base));

    return prim_watch_restart(&watch, base->host + start, end - start);
}

void watch_restart(BaselineBlock *base, const unsigned long *bits)
{
    uint64_t pages = base->len / qemu_target_page_size();
    uint64_t first, last = 0;
    int ret = 0;

    if (!bits) {
        ret = watch_restart_range(base, 0, pages);
        last = pages;
    }
    while (!ret && last < pages) {
        first = find_next_bit(bits, pages, last);
        last = find_next_zero_bit(bits, pages, first);
        if (first < last) {
            ret = watch_restart_range(base, first, last);
        }
    }
    if (ret) {
        watch_fail(base, ret);
    }
}
