/*
 * The pieces in which a snapshot from memory is stored
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/bitmap.h"
#include "qemu/host-utils.h"
#include "qemu/memalign.h"
#include "block/block.h"
#include "system/ram-reset-rewind.h"
#include "migration/ram-reset/parents.h"
#include "migration/ram-reset/qcow2-hold.h"
#include "migration/ram-reset/store-pieces.h"
#include "migration/ram-reset/vmstate/compose.h"
#include "migration/ram-reset/vmstate/format.h"
#include "migration/ram-reset/vmstate/patches.h"

/*
 * @store: of the parent; a reference
 * @hold: all clusters with bytes in front of @cut
 * @cut: bytes of its VM state that the new one has, up to the mark that ends RAM
 * @clusters: those in front of @cut; the last part of a cluster is not shared
 * @changed: a bit for each, and for that part
 */
typedef struct Sharing {
    RamResetPageStore *store;
    VMStatePatches *patches;
    Qcow2Hold *hold;
    int64_t cut;
    uint64_t clusters;
    unsigned long *changed;
    uint64_t next, left;        /* of @changed: the next one, and the number */
    bool end_read;              /* the last part is in StorePieces.composed */
    bool given_up;              /* not all clusters could be held */
} Sharing;

struct StorePieces {
    Qcow2Store *store;
    VMStateComposer *composer;
    GByteArray *composed;       /* bytes that are to be written next */
    uint64_t size;              /* of the VM state so far, in bytes */
    uint8_t *buf;
    uint64_t bytes;             /* in @buf; 0: there is nothing to write */
    bool done;
    Sharing *sharing;           /* NULL: nothing is shared */
    GArray *list;               /* uint64_t: shared clusters to be read */
};

StorePieces *store_pieces_new(const RamResetSnapshot *s, BlockDriverState *bs,
                              Error **errp)
{
    VMStateComposer *composer = vmstate_compose_new(s->vmstate, s->ram_end,
                                                    s->point, errp);
    Qcow2Store *store = composer ? qcow2_store_new(bs, errp) : NULL;
    StorePieces *p;

    if (!store) {
        vmstate_compose_free(composer);
        return NULL;
    }
    p = g_new0(StorePieces, 1);
    p->store = store;
    p->composer = composer;
    p->composed = g_byte_array_new();
    p->buf = qemu_blockalign(bs, qcow2_store_piece(store));
    p->list = g_array_new(false, false, sizeof(uint64_t));
    return p;
}

static void sharing_free(Sharing *s)
{
    if (s->hold) {
        qcow2_hold_free(s->hold, !page_store_has_snapshot(s->store));
    }
    ram_reset_page_store_free(s->store);
    vmstate_patches_free(s->patches);
    g_free(s->changed);
    g_free(s);
}

/* Returns false when nothing is shared any more; else, call it again */
static bool pieces_end_sharing(StorePieces *p)
{
    Sharing *s = p->sharing;

    if (s && s->hold &&
        qcow2_hold_release_next(s->hold, qcow2_store_attached(p->store))) {
        return true;
    }
    g_clear_pointer(&p->sharing, sharing_free);
    return false;
}

bool store_pieces_end(StorePieces *p)
{
    if (pieces_end_sharing(p) || qcow2_store_release_next(p->store)) {
        return true;
    }
    g_clear_pointer(&p->store, qcow2_store_free);
    return false;
}

void store_pieces_free(StorePieces *p)
{
    assert(!p->store);
    vmstate_compose_free(p->composer);
    g_byte_array_unref(p->composed);
    g_array_unref(p->list);
    qemu_vfree(p->buf);
    g_free(p);
}

/* Whether @len bytes at @at of the parent's VM state are @bytes */
static bool sharing_has(BlockDriverState *bs, const RamResetParent *parent,
                        int64_t at, const uint8_t *bytes, size_t len)
{
    g_autofree uint8_t *buf = g_malloc(len);

    return ram_reset_qcow2_read(bs, page_store_clusters(parent->store), at, len,
                                buf) >= 0 && !memcmp(buf, bytes, len);
}

/*
 * In front of the first page and at the end of RAM, the parent must have what
 * @s has.  Then a load is in the same state there with both.
 */
static bool sharing_fits(BlockDriverState *bs, const RamResetSnapshot *s,
                         const RamResetParent *parent)
{
    const uint8_t *bytes = g_bytes_get_data(s->vmstate, NULL);
    int64_t start = vmstate_pages_start(bytes, s->ram_end);

    return start > 0 && start + RAM_RECORD < parent->ram_end &&
           page_places_end(page_store_places(parent->store)) ==
           parent->ram_end + SECTION_FOOTER &&
           s->ram_end + SECTION_FOOTER <= g_bytes_get_size(s->vmstate) &&
           sharing_has(bs, parent, 0, bytes, start) &&
           sharing_has(bs, parent, parent->ram_end - RAM_RECORD,
                       bytes + s->ram_end - RAM_RECORD,
                       RAM_RECORD + SECTION_FOOTER);
}

/* NULL if there is little to share */
static Sharing *sharing_new(StorePieces *p, const RamResetSnapshot *s,
                            const RamResetParent *parent)
{
    size_t size = qcow2_store_cluster(p->store);
    Sharing *sharing = g_new0(Sharing, 1);
    uint64_t nr;

    sharing->store = page_store_ref(parent->store);
    sharing->patches = vmstate_patches_new(s->point, parent->point,
                                           page_store_places(parent->store));
    sharing->cut = parent->ram_end - RAM_RECORD;
    sharing->clusters = sharing->cut / size;
    nr = DIV_ROUND_UP(sharing->cut, size);
    sharing->changed = bitmap_new(nr);
    if (sharing->patches) {
        vmstate_patches_mark(sharing->patches, ctz64(size), sharing->changed);
        sharing->left = bitmap_count_one(sharing->changed, sharing->clusters);
    }
    if (!sharing->patches || sharing->left * 4 >= sharing->clusters * 3) {
        sharing_free(sharing);
        return NULL;
    }
    sharing->hold = qcow2_hold_new(
        qcow2_store_image(p->store),
        ram_reset_qcow2_places_copy(page_store_clusters(parent->store), nr),
        nr);
    return sharing;
}

static void pieces_begin_sharing(StorePieces *p)
{
    Sharing *s = p->sharing;
    uint64_t nr;
    unsigned long *const *missing = vmstate_patches_missing(s->patches, &nr);

    qcow2_store_share(p->store, qcow2_hold_clusters(s->hold), s->clusters);
    vmstate_compose_behind(p->composer, s->cut, missing, nr,
                           page_store_places(s->store));
    p->size = s->clusters * qcow2_store_cluster(p->store);
}

/*
 * While the snapshot is there, its clusters are in use.  If it is there when all
 * of them are held, they were held in time.
 */
static bool pieces_hold(StorePieces *p)
{
    Sharing *s = p->sharing;

    if (s->given_up) {
        return pieces_end_sharing(p);
    }
    if (!page_store_has_snapshot(s->store) || qcow2_hold_next(s->hold) < 0 ||
        !page_store_has_snapshot(s->store)) {
        s->given_up = true;
        return true;
    }
    if (!qcow2_hold_is_complete(s->hold)) {
        return true;
    }
    pieces_begin_sharing(p);
    return false;
}

bool store_pieces_share(StorePieces *p, const RamResetSnapshot *s)
{
    BlockDriverState *bs = qcow2_store_image(p->store);
    const RamResetParent *found;
    RamResetParent parent;

    if (p->sharing) {
        return pieces_hold(p);
    }
    found = ram_reset_parents_find(s, bs);
    if (found) {
        parent = *found;
        page_store_ref(parent.store);
        if (sharing_fits(bs, s, &parent)) {
            p->sharing = sharing_new(p, s, &parent);
        }
        ram_reset_page_store_free(parent.store);
    }
    return p->sharing;
}

static bool pieces_find_changed(StorePieces *p, Error **errp)
{
    Sharing *s = p->sharing;
    size_t size = qcow2_store_cluster(p->store);
    unsigned most = qcow2_store_piece(p->store) / size;

    while (p->list->len < most) {
        uint64_t nr = find_next_bit(s->changed, s->clusters, s->next);

        s->next = MIN(nr + 1, s->clusters);
        if (nr >= s->clusters) {
            break;
        }
        g_array_append_val(p->list, nr);
    }
    if (p->list->len) {
        s->left -= p->list->len;
        p->bytes = p->list->len * size;
        return qcow2_store_replace(p->store, p->list, errp);
    }
    if (!s->end_read && s->cut % size) {
        g_array_append_val(p->list, s->clusters);
    }
    s->end_read = true;
    return true;
}

static bool pieces_compose(StorePieces *p, Error **errp)
{
    size_t piece = qcow2_store_piece(p->store);
    uint64_t bytes;

    if (!vmstate_compose_next(p->composer, p->composed, piece, errp)) {
        return false;
    }
    bytes = MIN(piece, p->composed->len);
    p->done = !bytes;
    if (p->done) {
        return true;
    }
    p->bytes = ROUND_UP(bytes, qcow2_store_cluster(p->store));
    memcpy(p->buf, p->composed->data, bytes);
    memset(p->buf + bytes, 0, p->bytes - bytes);
    g_byte_array_remove_range(p->composed, 0, bytes);
    p->size += bytes;
    return qcow2_store_next(p->store, p->bytes, errp);
}

bool store_pieces_next(StorePieces *p, Error **errp)
{
    p->bytes = 0;
    g_array_set_size(p->list, 0);
    if (p->sharing && !p->sharing->end_read &&
        !pieces_find_changed(p, errp)) {
        return false;
    }
    return p->list->len || pieces_compose(p, errp);
}

bool store_pieces_are_done(const StorePieces *p)
{
    return p->done;
}

bool store_pieces_are_shared(const StorePieces *p)
{
    return p->list->len;
}

int coroutine_fn store_pieces_co_read(StorePieces *p)
{
    return qcow2_hold_co_read(p->sharing->hold, p->list, p->buf);
}

bool store_pieces_patch(StorePieces *p, Error **errp)
{
    Sharing *s = p->sharing;
    size_t size = qcow2_store_cluster(p->store);

    for (unsigned i = 0; i < p->list->len; i++) {
        int64_t at = g_array_index(p->list, uint64_t, i) * size;

        if (!vmstate_patches_apply(s->patches, at, p->buf + i * size, size,
                                   errp)) {
            ram_reset_parents_drop(s->store);
            return false;
        }
    }
    if (s->end_read) {
        g_byte_array_append(p->composed, p->buf, s->cut % size);
    }
    return true;
}

int coroutine_fn store_pieces_co_write(StorePieces *p)
{
    return p->bytes ? qcow2_store_co_write(p->store, p->buf, p->bytes) : 0;
}

uint64_t store_pieces_bytes(const StorePieces *p)
{
    return p->bytes;
}

uint64_t store_pieces_left(const StorePieces *p)
{
    uint64_t shared = p->sharing
                      ? p->sharing->left * qcow2_store_cluster(p->store) : 0;

    return shared + vmstate_compose_left(p->composer) + p->composed->len;
}

bool store_pieces_tables(StorePieces *p, Error **errp)
{
    qemu_vfree(p->buf);
    p->buf = NULL;
    p->bytes = 0;
    return qcow2_store_tables(p->store, &p->buf, &p->bytes, errp);
}

uint64_t store_pieces_size(const StorePieces *p)
{
    return p->size;
}

int64_t store_pieces_ram_end(const StorePieces *p)
{
    return vmstate_compose_ram_end(p->composer);
}

void store_pieces_become_parent(StorePieces *p, BlockDriverState *bs,
                                const RamResetSnapshot *s)
{
    ram_reset_parents_add(s, page_store_of_stored(
        bs, s, vmstate_compose_places(p->composer),
        qcow2_store_places(p->store)));
}

Qcow2Store *store_pieces_store(const StorePieces *p)
{
    return p->store;
}
