/*
 * The places of pages in a VM state
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/bswap.h"
#include "exec/target_page.h"
#include "migration/ram-reset/vmstate/format.h"
#include "migration/ram-reset/vmstate/page-places.h"

typedef struct PlacesBlock {
    char *name;
    GArray *runs;               /* of PageRun */
    uint64_t next;              /* the page behind that of the last record */
} PlacesBlock;

struct PagePlaces {
    /*
     * By name: the places of a parent outlive its RAM blocks, and another block
     * may get the address of one.
     */
    GHashTable *blocks;         /* of PlacesBlock */
    PlacesBlock *current;
    int64_t next;               /* position of the next record */
    int64_t end, footer;
    uint64_t passed;            /* pages of all first records */
    bool again;                 /* second records have begun */
    bool lost;
};

static void free_block(gpointer opaque)
{
    PlacesBlock *block = opaque;

    g_array_unref(block->runs);
    g_free(block->name);
    g_free(block);
}

PagePlaces *page_places_new(void)
{
    PagePlaces *p = g_new0(PagePlaces, 1);

    p->blocks = g_hash_table_new_full(g_str_hash, g_str_equal, NULL,
                                      free_block);
    return p;
}

void page_places_free(PagePlaces *p)
{
    if (p) {
        g_hash_table_unref(p->blocks);
        g_free(p);
    }
}

PagePlaces *page_places_copy(const PagePlaces *p)
{
    PagePlaces *copy = page_places_new();
    GHashTableIter iter;
    gpointer value;

    g_hash_table_iter_init(&iter, p->blocks);
    while (g_hash_table_iter_next(&iter, NULL, &value)) {
        const PlacesBlock *from = value;
        PlacesBlock *to = g_new0(PlacesBlock, 1);

        to->name = g_strdup(from->name);
        to->runs = g_array_new(false, false, sizeof(PageRun));
        g_array_append_vals(to->runs, from->runs->data, from->runs->len);
        g_hash_table_insert(copy->blocks, to->name, to);
    }
    copy->passed = p->passed;
    copy->lost = p->lost;
    copy->again = true;
    return copy;
}

/*
 * A block that has records of zero pages only has no run.  Returns whether the
 * last record was of another block.
 */
static bool enter_block(PagePlaces *p, const char *name)
{
    if (p->current && !strcmp(p->current->name, name)) {
        return false;
    }
    p->current = g_hash_table_lookup(p->blocks, name);
    if (!p->current) {
        p->current = g_new0(PlacesBlock, 1);
        p->current->name = g_strdup(name);
        p->current->runs = g_array_new(false, false, sizeof(PageRun));
        g_hash_table_insert(p->blocks, p->current->name, p->current);
    }
    return true;
}

/* In the block that was entered last */
static void put_page(PagePlaces *p, ram_addr_t offset, int64_t at, bool named)
{
    uint64_t size = qemu_target_page_size(), page = offset / size;
    GArray *runs = p->current->runs;
    PageRun *run = runs->len ? &g_array_index(runs, PageRun, runs->len - 1)
                             : NULL;

    p->end = at + size;
    p->passed += !p->again;
    if (run && page < run->page + run->nr && !p->again) {
        p->lost = true;
    } else if (run && page == run->page + run->nr &&
               at == run->at + run->nr * (size + RAM_RECORD)) {
        run->nr++;
    } else {
        PageRun one = { .page = page, .nr = 1, .at = at, .named = named };

        g_array_append_val(runs, one);
    }
}

void page_places_put(PagePlaces *p, const char *name, ram_addr_t offset,
                     int64_t at)
{
    bool named = enter_block(p, name);

    put_page(p, offset, at, named);
}

void page_places_begin_section(PagePlaces *p, int64_t at)
{
    p->next = at;
    p->lost |= at < 0;
}

void page_places_record(PagePlaces *p, const char *name, ram_addr_t offset,
                        int flags)
{
    uint64_t page = offset / qemu_target_page_size();

    if (p->lost) {
        return;
    }
    enter_block(p, name);
    p->again |= page < p->current->next;
    p->current->next = page + 1;
    p->next += flags & RAM_SAVE_FLAG_CONTINUE
               ? RAM_RECORD : RAM_RECORD + 1 + strlen(name);
    switch (flags & ~RAM_SAVE_FLAG_CONTINUE) {
    case RAM_SAVE_FLAG_ZERO:
        p->next += ZERO_RECORD - RAM_RECORD;
        p->passed++;
        p->lost |= p->again;
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
    if (p->current) {
        p->current->next += nr;
    }
}

/* A section ends with a record that has flags only */
void page_places_end_section(PagePlaces *p, int64_t at)
{
    p->lost |= at != p->next + RAM_RECORD;
    p->footer = at;
}

void page_places_set_footer(PagePlaces *p, int64_t at)
{
    p->footer = at;
}

const GArray *page_places_runs(const PagePlaces *p, const char *name)
{
    const PlacesBlock *block = p->lost ? NULL
                                       : g_hash_table_lookup(p->blocks, name);

    return block ? block->runs : NULL;
}

bool page_places_are_lost(const PagePlaces *p)
{
    return p->lost;
}

bool page_places_has_head(const uint8_t *content, size_t room, uint64_t page,
                          const char *name)
{
    uint64_t head = page * qemu_target_page_size() | RAM_SAVE_FLAG_PAGE;
    size_t len = name ? strlen(name) : 0;

    if (room < RAM_RECORD ||
        ldq_be_p(content - RAM_RECORD) == (head | RAM_SAVE_FLAG_CONTINUE)) {
        return true;
    }
    return name &&
           (room < RAM_RECORD + 1 + len ||
            (ldq_be_p(content - len - 1 - RAM_RECORD) == head &&
             content[-(ptrdiff_t)len - 1] == len &&
             !memcmp(content - len, name, len)));
}

static int compare_runs(const void *a, const void *b)
{
    const PageRun *x = a, *y = b;

    return x->page < y->page ? -1 : x->page > y->page;
}

/* Second records came later; false if a page has two that are not zero */
static bool sort_runs(GArray *runs)
{
    qsort(runs->data, runs->len, sizeof(PageRun), compare_runs);
    for (unsigned i = 1; i < runs->len; i++) {
        const PageRun *run = &g_array_index(runs, PageRun, i);

        if (run[-1].page + run[-1].nr > run->page) {
            return false;
        }
    }
    return true;
}

bool page_places_have_all(PagePlaces *p, uint64_t pages)
{
    GHashTableIter iter;
    gpointer value;

    g_hash_table_iter_init(&iter, p->blocks);
    while (p->again && g_hash_table_iter_next(&iter, NULL, &value)) {
        p->lost |= !sort_runs(((PlacesBlock *)value)->runs);
    }
    return !p->lost && p->passed == pages;
}

int64_t page_places_end(const PagePlaces *p)
{
    return p->footer > 0 ? p->footer + SECTION_FOOTER : p->end;
}
