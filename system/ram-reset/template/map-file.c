/*
 * Templates: map a block from a file that is no template
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qapi/error.h"
#include "qemu/bitmap.h"
#include "qemu/cutils.h"
#include "qemu/main-loop.h"
#include "system/ram-reset-template.h"
#include "system/ram-reset/block-list.h"
#include "system/ram-reset/block/overlay-map.h"
#include "system/ram-reset/block/overlay.h"
#include "system/ram-reset/prim/ranges.h"
#include "system/ram-reset/prim/trusted-file.h"
#include "system/ram-reset/template/refusal.h"

/*
 * If there are too many runs, a mapping has the pages between some, too.  The
 * guest then takes these zeros from the file, which costs page cache.
 */
#define FIRST_GAP  2            /* pages */
#define MOST_TIMES 4            /* the bytes that are stored */

/* @stored: the pages that the file has, in bytes of the block */
typedef struct MapFile {
    RamResetBlock *blk;
    RamResetOverlay from;
    const GArray *stored;
} MapFile;

static GArray *stored_ranges(const unsigned long *stored, uint64_t nr,
                             size_t page)
{
    GArray *ranges = prim_ranges_new();
    uint64_t start, end;

    for (start = find_first_bit(stored, nr); start < nr;
         start = find_next_bit(stored, nr, end)) {
        end = find_next_zero_bit(stored, nr, start);
        prim_ranges_add(ranges, start * page, end * page, 0);
    }
    return ranges;
}

/* Whoever can write to the file controls the guest, as with a template */
static bool check_file(const MapFile *m, Error **errp)
{
    unsigned nr = m->stored->len;
    PrimRange last = nr ? g_array_index(m->stored, PrimRange, nr - 1)
                        : (PrimRange) { 0 };
    g_autofree char *refusal =
        trusted_file_fd_refusal(m->from.fd,
                                TRUST_ROOT | TRUST_READERS | TRUST_LINKS);
    struct stat st;

    if (refusal) {
        error_setg(errp, "%s", refusal);
    } else if (fstat(m->from.fd, &st) < 0) {
        error_setg_errno(errp, errno, "its size is unknown");
    } else if (m->from.offset + last.start + last.len > st.st_size) {
        error_setg(errp, "it is cut short");
    } else if (m->from.offset % qemu_real_host_page_size()) {
        error_setg(errp, "its pages do not begin at a page of the host");
    } else {
        return true;
    }
    return false;
}

/* The file may have an older content there, since the page is zero now */
static void clear_pages(const MapFile *m, uint64_t start, uint64_t end)
{
    uint8_t *host = m->blk->map.host;

    for (; start < end; start += m->from.page_size) {
        if (!buffer_is_zero(host + start, m->from.page_size)) {
            memset(host + start, 0, m->from.page_size);
        }
    }
}

static void clear_gap(const MapFile *m, uint64_t start, uint64_t end)
{
    uint64_t page = m->from.page_size;

    while (start < end) {
        off_t data = lseek(m->from.fd, m->from.offset + start, SEEK_DATA);
        off_t hole = data < 0 ? -1 : lseek(m->from.fd, data, SEEK_HOLE);

        if (data < 0 && errno == ENXIO) {
            return;
        }
        if (hole < 0) {
            clear_pages(m, start, end);
            return;
        }
        data -= m->from.offset;
        if (data < end) {
            clear_pages(m, QEMU_ALIGN_DOWN(data, page),
                        MIN(end, QEMU_ALIGN_UP(hole - m->from.offset, page)));
        }
        start = MIN(end, hole - m->from.offset);
        start = QEMU_ALIGN_UP(start, page);
    }
}

/* Runs have pages that are not stored, if they have been joined */
static void clear_gaps(const MapFile *m)
{
    unsigned next = 0;

    for (unsigned i = 0; i < m->from.runs->len; i++) {
        PrimRange run = g_array_index(m->from.runs, PrimRange, i);
        uint64_t at = run.start;

        for (; at < run.start + run.len; next++) {
            PrimRange stored = g_array_index(m->stored, PrimRange, next);

            clear_gap(m, at, stored.start);
            at = stored.start + stored.len;
        }
    }
}

static bool map_file(const MapFile *m, Error **errp)
{
    RamResetBlock *blk = m->blk;
    int ret;

    if (!template_host_is_able(errp) || !check_file(m, errp)) {
        return false;
    }
    if (memory_region_has_ram_discard_manager(blk->rb->mr)) {
        error_setg(errp, "parts of it are unplugged (virtio-mem)");
        return false;
    }
    if (!ram_reset_map_is_allowed(blk, &m->from, errp)) {
        return false;
    }
    ret = ram_reset_map(blk, &m->from);
    if (!ret) {
        clear_gaps(m);
        return true;
    }
    ram_reset_unmap(blk);
    if (overlay_map_has(blk->rb->host, blk->rb)) {
        memset(blk->rb->host, 0, blk->rb->used_length);
    }
    error_setg_errno(errp, -ret, "the host refused to map it");
    return false;
}

bool ram_reset_map_file(RAMBlock *rb, int fd, uint64_t offset,
                        const unsigned long *stored, Error **errp)
{
    size_t page = qemu_target_page_size();
    g_autoptr(RamResetBlockList) list = ram_reset_list_blocks();
    g_autoptr(GArray) ranges = NULL, runs = NULL;
    MapFile m = { 0 };

    assert(bql_locked());
    for (unsigned i = 0; i < list->nr; i++) {
        if (list->blocks[i].rb == rb) {
            m.blk = &list->blocks[i];
        }
    }
    if (!m.blk || !m.blk->map.len) {
        error_setg(errp, "no ram-reset object covers it");
        return false;
    }
    ranges = stored_ranges(stored, rb->used_length / page, page);
    runs = prim_ranges_join(g_array_copy(ranges), OVERLAY_MAP_MAX,
                            FIRST_GAP * page, MOST_TIMES);
    m.stored = ranges;
    m.from = (RamResetOverlay) {
        .fd = fd, .offset = offset, .page_size = page, .runs = runs,
    };
    return map_file(&m, errp);
}
