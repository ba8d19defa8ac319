/*
 * A VM state made of that of another snapshot
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qapi/error.h"
#include "qemu/bitmap.h"
#include "qemu/bswap.h"
#include "exec/target_page.h"
#include "system/ram-reset-rewind.h"
#include "migration/ram-reset/vmstate/format.h"
#include "migration/ram-reset/vmstate/patches.h"

typedef struct Patch {
    int64_t at;                 /* of the content in the VM state */
    uint64_t page;
    unsigned block;
    bool named;                 /* as in PageRun */
} Patch;

struct VMStatePatches {
    uint64_t point;
    GArray *patches;            /* in the order of their places */
    GPtrArray *missing;         /* a bitmap for each block */
    uint64_t nr_missing;
};

/* @changed: a bitmap of @pages bits; @runs may be NULL */
static void patches_add_block(VMStatePatches *p, const GArray *runs,
                              unsigned block, const unsigned long *changed,
                              uint64_t pages)
{
    size_t step = RAM_RECORD + qemu_target_page_size();
    unsigned long *missing = bitmap_new(MAX(pages, 1));
    unsigned i = 0, nr = runs ? runs->len : 0;
    uint64_t page;

    for (page = find_first_bit(changed, pages); page < pages;
         page = find_next_bit(changed, pages, page + 1)) {
        const PageRun *run = NULL;

        for (; i < nr; i++) {
            run = &g_array_index(runs, PageRun, i);
            if (page < run->page + run->nr) {
                break;
            }
        }
        if (i < nr && page >= run->page) {
            Patch patch = {
                .at = run->at + (page - run->page) * step,
                .page = page,
                .block = block,
                .named = page == run->page && run->named,
            };

            g_array_append_val(p->patches, patch);
        } else {
            set_bit(page, missing);
            p->nr_missing++;
        }
    }
    g_ptr_array_add(p->missing, missing);
}

static int patches_compare(const void *a, const void *b)
{
    const Patch *x = a, *y = b;

    return x->at < y->at ? -1 : x->at > y->at;
}

VMStatePatches *vmstate_patches_new(uint64_t point, uint64_t other,
                                    const PagePlaces *places)
{
    VMStatePatches *p;
    const char *name;
    uint64_t pages;

    if (page_places_are_lost(places)) {
        return NULL;
    }
    p = g_new0(VMStatePatches, 1);
    p->point = point;
    p->patches = g_array_new(false, false, sizeof(Patch));
    p->missing = g_ptr_array_new_with_free_func(g_free);
    for (unsigned i = 0;
         ram_reset_point_block(point, i, &name, &pages); i++) {
        const GArray *runs = page_places_runs(places, name);
        g_autofree unsigned long *changed = bitmap_new(MAX(pages, 1));

        if (pages) {
            ram_reset_point_diff(point, other, i, changed);
        }
        patches_add_block(p, runs, i, changed, pages);
    }
    qsort(p->patches->data, p->patches->len, sizeof(Patch), patches_compare);
    return p;
}

void vmstate_patches_free(VMStatePatches *p)
{
    if (p) {
        g_array_unref(p->patches);
        g_ptr_array_unref(p->missing);
        g_free(p);
    }
}

void vmstate_patches_mark(const VMStatePatches *p, unsigned bits,
                          unsigned long *parts)
{
    for (unsigned i = 0; i < p->patches->len; i++) {
        int64_t at = g_array_index(p->patches, Patch, i).at;
        int64_t last = at + qemu_target_page_size() - 1;

        bitmap_set(parts, at >> bits, (last >> bits) - (at >> bits) + 1);
    }
}

unsigned long *const *vmstate_patches_missing(const VMStatePatches *p,
                                              uint64_t *nr)
{
    *nr = p->nr_missing;
    return (unsigned long *const *)p->missing->pdata;
}

/* The first patch that ends behind @start */
static unsigned patches_first(const VMStatePatches *p, int64_t start)
{
    int64_t size = qemu_target_page_size();
    unsigned low = 0, high = p->patches->len;

    while (low < high) {
        unsigned middle = (low + high) / 2;

        if (g_array_index(p->patches, Patch, middle).at + size > start) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return low;
}

static bool patch_fits(const VMStatePatches *p, const Patch *patch,
                       int64_t start, const uint8_t *buf)
{
    int64_t at = patch->at - start;
    const char *name;
    uint64_t pages;

    return at < 0 ||
           (ram_reset_point_block(p->point, patch->block, &name, &pages) &&
            page_places_has_head(buf + at, at, patch->page,
                                 patch->named ? name : NULL));
}

bool vmstate_patches_apply(const VMStatePatches *p, int64_t start, uint8_t *buf,
                           size_t len, Error **errp)
{
    int64_t size = qemu_target_page_size(), end = start + len;

    for (unsigned i = patches_first(p, start); i < p->patches->len; i++) {
        const Patch *patch = &g_array_index(p->patches, Patch, i);
        int64_t from = MAX(patch->at, start), to = MIN(patch->at + size, end);
        const uint8_t *content;

        if (patch->at >= end) {
            break;
        }
        if (!patch_fits(p, patch, start, buf)) {
            error_setg(errp, "the image has other data at byte %" PRId64
                       " of the VM state that it should share", patch->at);
            return false;
        }
        content = ram_reset_point_page(p->point, patch->block, patch->page);
        if (content) {
            memcpy(buf + from - start, content + from - patch->at, to - from);
        } else {
            memset(buf + from - start, 0, to - from);
        }
    }
    return true;
}

/*
 * Such a VM state ends so: a section of type PART, the command to switch over if
 * the machine sends that, and a section of type END.  Both sections have the
 * mark of their end only.
 */
int64_t vmstate_pages_start(const uint8_t *bytes, int64_t ram_end)
{
    int64_t end = ram_end - RAM_RECORD - SECTION_HEAD;
    int64_t footer = end - SECTION_FOOTER, part;

    if (footer < SECTION_FOOTER + COMMAND_HEAD + RAM_RECORD + SECTION_HEAD) {
        return -1;
    }
    if (bytes[footer] == QEMU_VM_COMMAND && !lduw_be_p(bytes + footer + 3)) {
        footer -= COMMAND_HEAD;
    }
    part = footer - RAM_RECORD - SECTION_HEAD;
    if (bytes[end] != QEMU_VM_SECTION_END ||
        bytes[footer] != QEMU_VM_SECTION_FOOTER ||
        bytes[part] != QEMU_VM_SECTION_PART ||
        memcmp(bytes + part + 1, bytes + end + 1, SECTION_HEAD - 1) ||
        memcmp(bytes + footer + 1, bytes + end + 1, SECTION_FOOTER - 1) ||
        ldq_be_p(bytes + footer - RAM_RECORD) != RAM_SAVE_FLAG_EOS) {
        return -1;
    }
    return part + SECTION_HEAD;
}
