/*
 * RAM reset: what is written to memory that devices have of their own
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

/* What is mapped is whole pages of the host */
static uint64_t mapped_len(const BaselineBlock *base)
{
    return ROUND_UP(base->len, qemu_real_host_page_size());
}

/* Whether there is but one way to write to @rb, our mapping that QEMU made */
static bool is_only_mapping(RAMBlock *rb)
{
    return rb->fd < 0 && !qemu_ram_is_shared(rb) && !(rb->flags & RAM_PREALLOC);
}

static void unwatched(BaselineBlock *base, const char *what, int ret)
{
    g_free(base->unwatched);
    base->unwatched = ret ? g_strdup_printf("%s: %s", what, g_strerror(-ret))
                          : g_strdup(what);
    trace_ram_reset_unwatched(base->rb->idstr, base->unwatched);
}

static void begin(BaselineBlock *base, int opened)
{
    int ret = opened;

    if (!is_only_mapping(base->rb)) {
        unwatched(base, "it is shared, or not mapped by QEMU", 0);
        return;
    }
    if (!ret) {
        ret = prim_watch_add(&watch, base->host, mapped_len(base));
    }
    if (ret) {
        unwatched(base, "the kernel does not tell what is written", ret);
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
            begin(base, ret);
        }
    }
}

void watch_end(void)
{
    if (watching) {
        prim_watch_close(&watch);
        watching = false;
    }
}

static void failed(BaselineBlock *base, int ret)
{
    unwatched(base, "the kernel does not tell any more what is written", ret);
    base->watched = false;
}

bool watch_take(BaselineBlock *base, unsigned long *bits)
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
        failed(base, ret);
    }
    return !ret;
}

/* Host pages and target pages need not be of one size */
static int anew(const BaselineBlock *base, uint64_t first, uint64_t last)
{
    uint64_t page = qemu_target_page_size();
    uint64_t host_page = qemu_real_host_page_size();
    uint64_t start = QEMU_ALIGN_DOWN(first * page, host_page);
    uint64_t end = MIN(QEMU_ALIGN_UP(last * page, host_page),
                       mapped_len(base));

    return prim_watch_restart(&watch, base->host + start, end - start);
}

void watch_anew(BaselineBlock *base, const unsigned long *bits)
{
    uint64_t pages = base->len / qemu_target_page_size();
    uint64_t first, last = 0;
    int ret = 0;

    if (!bits) {
        ret = anew(base, 0, pages);
        last = pages;
    }
    while (!ret && last < pages) {
        first = find_next_bit(bits, pages, last);
        last = find_next_zero_bit(bits, pages, first);
        if (first < last) {
            ret = anew(base, first, last);
        }
    }
    if (ret) {
        failed(base, ret);
    }
}
