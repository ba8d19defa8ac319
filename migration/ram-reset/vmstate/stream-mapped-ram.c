/*
 * Reading RAM blocks that were saved with migration capability mapped-ram
 *
 * Each block has a header, a bitmap of its stored pages, and room for all of
 * its pages.  A page that is not stored is zero.  The next block follows.  See
 * MappedRamHeader in ram.c.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/bitmap.h"
#include "qemu/host-utils.h"
#include "exec/target_page.h"
#include "migration/ram-reset/vmstate/stream-mapped-ram.h"

/* @bitmap and @pages are positions in the VM state; sizes are in bytes */
typedef struct MappedBlock {
    const char *name;
    uint64_t len;
    uint64_t bitmap, bitmap_size;
    uint64_t pages;
} MappedBlock;

static RamStreamResult visit_pages(RamStream *s, const MappedBlock *b,
                                   const unsigned long *stored)
{
    g_autofree uint8_t *piece = g_malloc(MAPPED_PIECE);
    RamStreamResult res = RAM_STREAM_DONE;
    size_t size = qemu_target_page_size();
    uint64_t nr = b->len / size, at, end;

    for (at = 0; at < nr && res == RAM_STREAM_DONE; at = end) {
        uint8_t *data = NULL;

        if (test_bit(at, stored)) {
            data = piece;
            end = MIN(find_next_zero_bit(stored, nr, at),
                      at + MAPPED_PIECE / size);
            qemu_get_buffer_at(s->f, data, (end - at) * size,
                               b->pages + at * size);
        } else {
            end = find_next_bit(stored, nr, at);
        }
        res = ram_stream_check(s);
        if (res == RAM_STREAM_DONE &&
            !s->visitor->pages(s->opaque, b->name, at * size, data,
                               (end - at) * size, s->errp)) {
            return RAM_STREAM_STOPPED;
        }
    }
    return res;
}

static RamStreamResult visit_block(RamStream *s, const MappedBlock *b)
{
    g_autofree unsigned long *stored = g_try_malloc0(b->bitmap_size);
    RamStreamResult res;

    if (!stored && b->bitmap_size) {
        error_setg(s->errp, "there is no memory for the page bitmap of block "
                   "'%s' with %" PRIu64 " bytes", b->name, b->len);
        return RAM_STREAM_BAD;
    }
    qemu_get_buffer_at(s->f, (uint8_t *)stored, b->bitmap_size, b->bitmap);
    res = ram_stream_check(s);
    if (res == RAM_STREAM_DONE && s->visitor->stored &&
        !s->visitor->stored(s->opaque, b->name, b->len, stored, s->errp)) {
        return RAM_STREAM_STOPPED;
    }
    return res == RAM_STREAM_DONE && s->visitor->pages
           ? visit_pages(s, b, stored) : res;
}

/* Header, bitmap and pages must come in this order; the pages end at @end */
static bool is_in_order(const RamStream *s, const MappedBlock *b,
                        uint64_t *end)
{
    uint64_t bitmap_end;

    return b->bitmap >= s->here &&
           !uadd64_overflow(b->bitmap, b->bitmap_size, &bitmap_end) &&
           b->pages >= bitmap_end &&
           QEMU_IS_ALIGNED(b->pages, qemu_target_page_size()) &&
           !uadd64_overflow(b->pages, b->len, end) && *end <= INT64_MAX;
}

RamStreamResult ram_stream_mapped_block(RamStream *s, const char *name,
                                        uint64_t len)
{
    uint32_t version = qemu_get_be32(s->f);
    uint64_t size = qemu_get_be64(s->f), bitmap = qemu_get_be64(s->f), end;
    MappedBlock b = {
        .name = name,
        .len = len,
        .bitmap = bitmap,
        .bitmap_size = BITS_TO_LONGS(len / qemu_target_page_size()) *
                       sizeof(long),
        .pages = qemu_get_be64(s->f),
    };
    RamStreamResult res = ram_stream_check(s);

    if (res != RAM_STREAM_DONE) {
        return res;
    }
    if (version > 1) {
        error_setg(s->errp, "mapped-ram has unknown version %" PRIu32,
                   version);
        return RAM_STREAM_UNKNOWN;
    }
    if (size != qemu_target_page_size()) {
        error_setg(s->errp, "pages of RAM block '%s' have %" PRIu64
                   " bytes in the snapshot, and %zu in this machine", name,
                   size, qemu_target_page_size());
        return RAM_STREAM_BAD;
    }
    /* The head of a block has its name, its length and this header */
    s->here += 1 + strlen(name) + sizeof(uint64_t) * (1 + s->ignore_shared) +
               MAPPED_HEADER;
    /* Since 11.1 an ignored block has such a header */
    if (s->ignore_shared && !b.bitmap && !b.pages) {
        return RAM_STREAM_DONE;
    }
    if (!is_in_order(s, &b, &end)) {
        error_setg(s->errp, "the list of RAM blocks is damaged: the pages of "
                   "block '%s' are at offset %" PRIu64, name, b.pages);
        return RAM_STREAM_BAD;
    }
    s->here = end;
    qemu_set_offset(s->f, end, SEEK_SET);
    return s->visitor->pages || s->visitor->stored ? visit_block(s, &b)
                                                   : ram_stream_check(s);
}
