/*
 * A VM state with RAM, made of one without RAM and a point
 *
 * savevm writes RAM's last section in any case, with the mark of its end only
 * if no page is left.  All pages go in front of that mark.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qapi/error.h"
#include "qemu/bitmap.h"
#include "qemu/bswap.h"
#include "exec/target_page.h"
#include "system/ram-reset-compat.h"
#include "system/ram-reset-rewind.h"
#include "migration/ram-reset/vmstate/compose.h"
#include "migration/ram-reset/vmstate/format.h"

struct VMStateComposer {
    GBytes *vmstate;
    uint64_t ram_end, point;
    bool begun, ended;          /* the parts before and behind pages are done */
    unsigned long *const *only; /* the pages of each block; NULL: all pages */
    unsigned block;
    uint64_t page;              /* the next one of the block */
    bool named;                 /* a record has the name of the block */
    PagePlaces *places;         /* NULL: not noted */
    int64_t base;               /* place of the first byte in the array */
    uint64_t pages_left;
    uint64_t composed;          /* bytes */
    int64_t new_ram_end;
};

static uint64_t compose_count_pages(uint64_t point)
{
    uint64_t all = 0, pages;
    const char *name;

    for (unsigned i = 0; ram_reset_point_block(point, i, &name, &pages); i++) {
        all += pages;
    }
    return all;
}

VMStateComposer *vmstate_compose_new(GBytes *vmstate, uint64_t ram_end,
                                     uint64_t point, Error **errp)
{
    size_t size;
    const uint8_t *bytes = g_bytes_get_data(vmstate, &size);
    VMStateComposer *c;

    if (ram_end < RAM_RECORD || ram_end > size ||
        ldq_be_p(bytes + ram_end - RAM_RECORD) != RAM_SAVE_FLAG_EOS) {
        error_setg(errp, "the VM state has no end of RAM");
        return NULL;
    }
    c = g_new0(VMStateComposer, 1);
    c->vmstate = g_bytes_ref(vmstate);
    c->ram_end = ram_end;
    c->point = point;
    c->places = page_places_new();
    c->pages_left = compose_count_pages(point);
    return c;
}

void vmstate_compose_free(VMStateComposer *c)
{
    if (c) {
        g_bytes_unref(c->vmstate);
        page_places_free(c->places);
        g_free(c);
    }
}

static void compose_bytes(GByteArray *to, uint64_t start, uint64_t end,
                          GBytes *from)
{
    const uint8_t *bytes = g_bytes_get_data(from, NULL);

    g_byte_array_append(to, bytes + start, end - start);
}

/* A block that has been unplugged has no places */
static void compose_note(VMStateComposer *c, int64_t at, const char *name,
                         bool zero)
{
    if (!c->named && !qemu_ram_block_by_name(name)) {
        g_clear_pointer(&c->places, page_places_free);
    }
    if (c->places && zero) {
        page_places_zeros(c->places, 1);
    } else if (c->places) {
        page_places_put(c->places, name, c->page * qemu_target_page_size(),
                        at);
    }
}

/* The first record of a block has its name */
static void compose_page(VMStateComposer *c, GByteArray *to, const char *name,
                         const uint8_t *content)
{
    size_t size = qemu_target_page_size();
    uint8_t len = strlen(name), zero = 0;
    uint64_t head = cpu_to_be64((c->page * size) |
                                (c->named ? RAM_SAVE_FLAG_CONTINUE : 0) |
                                (content ? RAM_SAVE_FLAG_PAGE
                                         : RAM_SAVE_FLAG_ZERO));

    g_byte_array_append(to, (uint8_t *)&head, sizeof(head));
    if (!c->named) {
        g_byte_array_append(to, &len, 1);
        g_byte_array_append(to, (const uint8_t *)name, len);
    }
    compose_note(c, c->base + to->len, name, !content);
    g_byte_array_append(to, content ?: &zero, content ? size : 1);
    c->named = true;
    c->page++;
    c->pages_left--;
}

/* Returns whether all pages have been composed */
static bool compose_pages(VMStateComposer *c, GByteArray *to, size_t room)
{
    const char *name;
    uint64_t pages;

    while (to->len < room) {
        if (!ram_reset_point_block(c->point, c->block, &name, &pages)) {
            return true;
        }
        if (c->only && pages) {
            c->page = find_next_bit(c->only[c->block], pages, c->page);
        }
        if (c->page == pages) {
            c->block++;
            c->page = 0;
            c->named = false;
            continue;
        }
        compose_page(c, to, name,
                     ram_reset_point_page(c->point, c->block, c->page));
    }
    return false;
}

void vmstate_compose_behind(VMStateComposer *c, int64_t start,
                            unsigned long *const *pages, uint64_t nr,
                            const PagePlaces *places)
{
    page_places_free(c->places);
    c->places = page_places_copy(places);
    c->begun = true;
    c->composed = start;
    c->only = pages;
    c->pages_left = nr;
}

bool vmstate_compose_next(VMStateComposer *c, GByteArray *to, size_t room,
                          Error **errp)
{
    uint64_t before = to->len;

    if (!ram_reset_has_point(c->point)) {
        error_setg(errp, "its RAM is not in memory any more");
        return false;
    }
    c->base = c->composed - before;
    if (!c->begun) {
        compose_bytes(to, 0, c->ram_end - RAM_RECORD, c->vmstate);
        c->begun = true;
    }
    if (!c->ended && compose_pages(c, to, room)) {
        c->new_ram_end = c->base + to->len + RAM_RECORD;
        compose_bytes(to, c->ram_end - RAM_RECORD,
                      g_bytes_get_size(c->vmstate), c->vmstate);
        c->ended = true;
    }
    c->composed += to->len - before;
    return true;
}

uint64_t vmstate_compose_left(const VMStateComposer *c)
{
    uint64_t parts = c->begun ? g_bytes_get_size(c->vmstate) - c->ram_end
                              : g_bytes_get_size(c->vmstate);

    return c->ended ? 0 : parts + c->pages_left *
                          (RAM_RECORD + qemu_target_page_size());
}

int64_t vmstate_compose_ram_end(const VMStateComposer *c)
{
    return c->new_ram_end;
}

PagePlaces *vmstate_compose_places(VMStateComposer *c)
{
    if (c->places) {
        page_places_set_footer(c->places, c->new_ram_end);
    }
    return g_steal_pointer(&c->places);
}
