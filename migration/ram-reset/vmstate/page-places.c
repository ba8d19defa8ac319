/*
 * The places of pages in a VM state
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "exec/target_page.h"
#include "system/ram-reset-compat.h"
#include "migration/ram-reset/vmstate/format.h"
#include "migration/ram-reset/vmstate/page-places.h"

struct PagePlaces {
    GHashTable *runs;           /* RAMBlock -> GArray of PageRun */
    const RAMBlock *last;       /* whose runs are @current */
    GArray *current;
    int64_t next;               /* position of the next record */
    int64_t end;
    uint64_t passed;            /* pages of all records */
    bool lost;
};

static void free_array(gpointer array)
{
    g_array_unref(array);
}

PagePlaces *page_places_new(void)
{
    PagePlaces *p = g_new0(PagePlaces, 1);

    p->runs = g_hash_table_new_full(NULL, NULL, NULL, free_array);
    return p;
}

void page_places_free(PagePlaces *p)
{
    if (p) {
        g_hash_table_unref(p->runs);
        g_free(p);
    }
}

/* A block that has records of zero pages only has no run */
static void enter_block(PagePlaces *p, const RAMBlock *rb)
{
    if (rb == p->last) {
        return;
    }
    p->last = rb;
    p->current = g_hash_table_lookup(p->runs, rb);
    if (!p->current) {
        p->current = g_array_new(false, false, sizeof(PageRun));
        g_hash_table_insert(p->runs, (gpointer)rb, p->current);
    }
}

/* In the block that was entered last */
static void put_page(PagePlaces *p, ram_addr_t offset, int64_t at, bool named)
{
    uint64_t size = qemu_target_page_size(), page = offset / size;
    PageRun *run;

    p->end = at + size;
    p->passed++;
    run = p->current->len ? &g_array_index(p->current, PageRun,
                                           p->current->len - 1) : NULL;
    if (run && page < run->page + run->nr) {
        p->lost = true;
    } else if (run && page == run->page + run->nr &&
               at == run->at + run->nr * (size + RAM_RECORD)) {
        run->nr++;
    } else {
        PageRun one = { .page = page, .nr = 1, .at = at, .named = named };

        g_array_append_val(p->current, one);
    }
}

void page_places_put(PagePlaces *p, const RAMBlock *rb, ram_addr_t offset,
                     int64_t at)
{
    bool named = rb != p->last;

    enter_block(p, rb);
    put_page(p, offset, at, named);
}

void page_places_begin_section(PagePlaces *p, int64_t at)
{
    p->next = at;
    p->lost |= at < 0;
}

void page_places_record(PagePlaces *p, const RAMBlock *rb, ram_addr_t offset,
                        int flags)
{
    if (p->lost) {
        return;
    }
    enter_block(p, rb);
    p->next += flags & RAM_SAVE_FLAG_CONTINUE
               ? RAM_RECORD : RAM_RECORD + 1 + strlen(rb->idstr);
    switch (flags & ~RAM_SAVE_FLAG_CONTINUE) {
    case RAM_SAVE_FLAG_ZERO:
        p->next += ZERO_RECORD - RAM_RECORD;
        p->passed++;
        break;
    case RAM_SAVE_FLAG_PAGE:
        put_page(p, offset, p->next, !(flags & RAM_SAVE_FLAG_CONTINUE));
        p->next += qemu_target_page_size();
        break;
    default:
        p->lost = true;
    }
}

void page_places_zeros(PagePlaces *p, uint64_t nr)
{
    p->next += nr * ZERO_RECORD;
    p->passed += nr;
}

/* A section ends with a record that has flags only */
void page_places_end_section(PagePlaces *p, int64_t at)
{
    p->lost |= at != p->next + RAM_RECORD;
}

const GArray *page_places_runs(const PagePlaces *p, const RAMBlock *rb)
{
    return p->lost ? NULL : g_hash_table_lookup(p->runs, rb);
}

bool page_places_have_all(const PagePlaces *p, uint64_t pages)
{
    return !p->lost && p->passed == pages;
}

int64_t page_places_end(const PagePlaces *p)
{
    return p->end;
}
