/*
 * RAM reset: pages in which RAM may differ from the position
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/bitmap.h"
#include "system/ram-reset/rewind/changes.h"
#include "system/ram-reset/rewind/dirty-log.h"
#include "system/ram-reset/rewind/watch.h"

static uint64_t changes_pages(const BaselineBlock *base)
{
    return base->len / qemu_target_page_size();
}

/* The kernel makes the untracked pages of a watched block writable itself */
static void changes_fetch_log(BaselineBlock *base, unsigned long *bits)
{
    ram_reset_dirty_fetch(base->rb, bits, base->untracked && !base->watched
                          ? ram_copy_untracked(base->copy) : NULL);
    if (base->pending) {
        bitmap_or(bits, bits, base->pending, changes_pages(base));
    }
}

bool changes_fetch(BaselineBlock *base, unsigned long *bits)
{
    changes_fetch_log(base, bits);
    g_clear_pointer(&base->pending, g_free);
    return !base->compared || (base->watched && watch_fetch(base, bits));
}

void changes_keep(BaselineBlock *base)
{
    g_autofree unsigned long *bits = bitmap_new(changes_pages(base));

    changes_fetch_log(base, bits);
    g_free(base->pending);
    base->pending = g_steal_pointer(&bits);
}
