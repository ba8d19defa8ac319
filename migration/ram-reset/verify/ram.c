/*
 * Verify that RAM has the content of a snapshot
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qapi/error.h"
#include "qemu/cutils.h"
#include "migration/misc.h"
#include "system/ram-reset-compat.h"
#include "system/ram-reset-load.h"
#include "migration/qemu-file.h"
#include "migration/ram-reset/verify/ram.h"
#include "migration/ram-reset/vmstate/stream.h"

/* Result of the comparison of a page with the VM state */
enum {
    PAGE_UNNAMED,
    PAGE_ZERO,
    PAGE_SAME,
    PAGE_DIFFERENT,
};

typedef struct ContentCheck {
    GHashTable *states;         /* RAMBlock -> uint8_t per target page */
    RAMBlock *last;
    uint8_t *last_state;
    Error **errp;
    bool ok;
} ContentCheck;

static uint8_t *content_state(ContentCheck *c, const char *name,
                              uint64_t offset, uint64_t len, Error **errp)
{
    RAMBlock *rb = c->last;

    if (!rb || strcmp(rb->idstr, name)) {
        rb = qemu_ram_block_by_name(name);
        c->last = rb;
        c->last_state = rb ? g_hash_table_lookup(c->states, rb) : NULL;
    }
    if (!c->last_state || offset >= rb->used_length ||
        len > rb->used_length - offset) {
        error_setg(errp, "the VM state has page 0x%" PRIx64 " of RAM block "
                   "'%s', this machine does not have it", offset, name);
        return NULL;
    }
    return &c->last_state[offset >> qemu_target_page_bits()];
}

/* If a page has several records, the last one counts */
static bool content_pages(void *opaque, const char *name, uint64_t offset,
                          const uint8_t *data, uint64_t len, Error **errp)
{
    ContentCheck *c = opaque;
    size_t size = qemu_target_page_size();
    uint8_t *state = content_state(c, name, offset, len, errp);

    if (!state) {
        return false;
    }
    if (!data) {
        memset(state, PAGE_ZERO, len / size);
        return true;
    }
    for (uint64_t at = 0; at < len; at += size) {
        *state++ = memcmp(c->last->host + offset + at, data + at, size)
                   ? PAGE_DIFFERENT : PAGE_SAME;
    }
    return true;
}

static bool content_error(ContentCheck *c, RAMBlock *rb, uint64_t page,
                          const char *what)
{
    error_setg(c->errp, "RAM is not what the snapshot has: %s at RAM block "
               "'%s', offset 0x%" PRIx64, what, rb->idstr,
               page << qemu_target_page_bits());
    c->ok = false;
    return false;
}

static bool content_piece(RAMBlock *rb, uint64_t start, const uint8_t *data,
                          uint64_t len, void *opaque)
{
    ContentCheck *c = opaque;
    const uint8_t *state = g_hash_table_lookup(c->states, rb);
    size_t size = qemu_target_page_size();
    bool covered = ram_reset_covers(rb);
    uint64_t at;

    for (at = 0; at < len; at += size) {
        uint64_t page = (start + at) / size;
        bool zero = state[page] == PAGE_ZERO ||
                    (covered && state[page] == PAGE_UNNAMED);

        if (zero && !buffer_is_zero(data + at, size)) {
            return content_error(c, rb, page, "a page that should be zero");
        }
    }
    return true;
}

static bool content_compare(ContentCheck *c)
{
    GHashTableIter iter;
    gpointer key, value;

    g_hash_table_iter_init(&iter, c->states);
    while (c->ok && g_hash_table_iter_next(&iter, &key, &value)) {
        RAMBlock *rb = key;
        uint64_t pages = rb->used_length >> qemu_target_page_bits();
        uint8_t *bad = memchr(value, PAGE_DIFFERENT, pages);

        if (bad) {
            return content_error(c, rb, bad - (uint8_t *)value,
                                 "a stored page differs");
        }
        ram_reset_foreach_content(rb, content_piece, c);
    }
    return c->ok;
}

bool ram_reset_check_content(BlockDriverState *bs, Error **errp)
{
    ERRP_GUARD();
    static const RamStreamVisitor visitor = {
        .pages = content_pages,
    };
    g_autoptr(GHashTable) states = g_hash_table_new_full(NULL, NULL, NULL,
                                                         g_free);
    ContentCheck c = { .states = states, .errp = errp, .ok = true };
    RamStreamResult res;
    RAMBlock *rb;
    QEMUFile *f;

    RCU_READ_LOCK_GUARD();
    RAMBLOCK_FOREACH(rb) {
        if (!migrate_ram_is_ignored(rb)) {
            g_hash_table_insert(states, rb,
                g_malloc0((rb->used_length >> qemu_target_page_bits()) + 1));
        }
    }
    f = ram_stream_open(bs);
    res = ram_stream_walk(f, &visitor, &c, errp);
    qemu_fclose(f);
    if (res != RAM_STREAM_DONE) {
        error_prepend(errp, "RAM cannot be verified: ");
        return false;
    }
    return content_compare(&c);
}
