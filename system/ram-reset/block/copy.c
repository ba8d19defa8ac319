/*
 * The copy of a RAM block that a snapshot has, and restoring it
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/bitmap.h"
#include "qemu/cutils.h"
#include "system/ram-reset/block/copy.h"
#include "system/ram-reset/prim/ranges.h"

/* Loads until an untracked page is sampled again; divides BITS_PER_LONG */
#define SAMPLE_EVERY 8

struct RamCopy {
    uint64_t len, map_len;
    size_t page_size;
    size_t words;
    uint8_t *copy;
    uint64_t size;
    unsigned long *stored;      /* pages present in @copy, or @unread */
    unsigned long *unread;      /* NULL if there was none yet */
    unsigned long *dirty;       /* at the last load */
    unsigned long *untracked;
};

/* Takes ownership of @copy, which may be MAP_FAILED */
static RamCopy *ram_copy_alloc(uint8_t *copy, uint64_t map_len, uint64_t len,
                               size_t page_size)
{
    RamCopy *t = g_new0(RamCopy, 1);
    bool failed = copy == MAP_FAILED;

    t->copy = copy;
    t->map_len = map_len;
    t->len = len;
    t->page_size = page_size;
    t->words = BITS_TO_LONGS(len / page_size);
    if (!failed) {
        /* A refusal is not an error */
        madvise(t->copy, map_len, MADV_DONTDUMP);
        madvise(t->copy, map_len, MADV_DONTFORK);
    }
    t->stored = g_try_new0(unsigned long, t->words);
    t->dirty = g_try_new0(unsigned long, t->words);
    t->untracked = g_try_new0(unsigned long, t->words);
    if (failed || !t->stored || !t->dirty || !t->untracked) {
        ram_copy_free(t);
        errno = ENOMEM;
        return NULL;
    }
    return t;
}

RamCopy *ram_copy_new(uint64_t len, size_t page_size)
{
    uint8_t *copy = mmap(NULL, len, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (copy != MAP_FAILED) {
        madvise(copy, len, MADV_NOHUGEPAGE);
    }
    return ram_copy_alloc(copy, len, len, page_size);
}

RamCopy *ram_copy_of_file(int fd, uint64_t offset, uint64_t room, uint64_t len,
                          size_t page_size, const GArray *runs)
{
    /* Private, so that file-lease.c can copy it */
    RamCopy *t = ram_copy_alloc(mmap(NULL, room, PROT_READ,
                                     MAP_PRIVATE | MAP_NORESERVE, fd, offset),
                                room, len, page_size);

    for (unsigned i = 0; t && i < runs->len; i++) {
        PrimRange run = g_array_index(runs, PrimRange, i);

        bitmap_set(t->stored, run.start / page_size, run.len / page_size);
        t->size += run.len;
    }
    return t;
}

void ram_copy_free(RamCopy *t)
{
    if (!t) {
        return;
    }
    if (t->copy != MAP_FAILED) {
        munmap(t->copy, t->map_len);
    }
    g_free(t->stored);
    g_free(t->unread);
    g_free(t->dirty);
    g_free(t->untracked);
    g_free(t);
}

void ram_copy_add(RamCopy *t, const uint8_t *host,
                  uint64_t start, uint64_t end)
{
    for (uint64_t at = start; at < end; at += t->page_size) {
        uint64_t page = at / t->page_size;

        if (buffer_is_zero(host + at, t->page_size)) {
            continue;
        }
        memcpy(t->copy + at, host + at, t->page_size);
        if (!test_bit(page, t->stored)) {
            set_bit(page, t->stored);
            t->size += t->page_size;
        }
    }
}

bool ram_copy_expect(RamCopy *t, const unsigned long *pages)
{
    t->unread = g_try_new0(unsigned long, t->words);
    if (!t->unread) {
        return false;
    }
    for (size_t w = 0; w < t->words; w++) {
        t->stored[w] = t->unread[w] = pages[w];
        t->size += __builtin_popcountl(pages[w]) * t->page_size;
    }
    return true;
}

uint64_t ram_copy_find_unread(const RamCopy *t, const unsigned long *among,
                              const unsigned long *except, unsigned long *found)
{
    uint64_t sum = 0;

    for (size_t w = 0; t->unread && w < t->words; w++) {
        unsigned long here = t->unread[w] & (among ? among[w] : ~0ul) &
                             ~(except ? except[w] : 0ul);

        if (here) {
            sum += __builtin_popcountl(here);
        }
        if (found) {
            found[w] = here;
        }
    }
    return sum;
}

uint8_t *ram_copy_room(RamCopy *t)
{
    return t->copy;
}

void ram_copy_has_read(RamCopy *t, const unsigned long *pages)
{
    for (size_t w = 0; w < t->words; w++) {
        t->unread[w] &= ~pages[w];
    }
}

bool ram_copy_is_unread(const RamCopy *t, uint64_t page)
{
    return t->unread && test_bit(page, t->unread);
}

void ram_copy_find_runs(const uint8_t *host, uint64_t start, uint64_t end,
                        size_t page_size, GArray *runs)
{
    for (uint64_t at = start; at < end; at += page_size) {
        if (!buffer_is_zero(host + at, page_size)) {
            prim_ranges_add(runs, at, at + page_size, 0);
        }
    }
}

uint64_t ram_copy_size(const RamCopy *t)
{
    return t->size;
}

const uint8_t *ram_copy_bytes(const RamCopy *t)
{
    return t->copy;
}

size_t ram_copy_words(const RamCopy *t)
{
    return t->words;
}

const unsigned long *ram_copy_untracked(const RamCopy *t)
{
    return t->untracked;
}

const unsigned long *ram_copy_stored(const RamCopy *t)
{
    return t->stored;
}

/*
 * A page that is not stored must not be read from the copy, which would
 * allocate it
 */
bool ram_copy_equals(const RamCopy *t, const uint8_t *host, uint64_t page)
{
    uint64_t at = page * t->page_size;

    return test_bit(page, t->stored)
           ? !memcmp(host + at, t->copy + at, t->page_size)
           : buffer_is_zero(host + at, t->page_size);
}

static unsigned long copy_sample(unsigned turn)
{
    unsigned long bits = 0;

    for (turn %= SAMPLE_EVERY; turn < BITS_PER_LONG; turn += SAMPLE_EVERY) {
        bits |= 1ul << turn;
    }
    return bits;
}

/* The pages of word @w that are untracked, @candidates and unchanged */
static unsigned long copy_unchanged(const RamCopy *t, const uint8_t *host,
                                    size_t w, unsigned long candidates)
{
    unsigned long found = 0;

    for (; candidates; candidates &= candidates - 1) {
        unsigned bit = __builtin_ctzl(candidates);

        if (ram_copy_equals(t, host, w * BITS_PER_LONG + bit)) {
            found |= 1ul << bit;
        }
    }
    return found;
}

/*
 * Pages are scattered: finding the next one, in page tables and in memory,
 * takes as long as copying this one.  Prefetch it.
 */
static void fetch_ahead(const RamCopy *t, const uint8_t *host, size_t w,
                        unsigned long next)
{
    if (next) {
        uint64_t at = (w * BITS_PER_LONG + __builtin_ctzl(next)) * t->page_size;

        __builtin_prefetch(host + at, 1);
        __builtin_prefetch(t->copy + at, 0);
    }
}

void ram_copy_restore(RamCopy *t, uint8_t *host,
                      const unsigned long *dirty,
                      const unsigned long *elsewhere, size_t first, size_t last,
                      unsigned turn, bool leave_zeros, RamCopyCounts *counts)
{
    const unsigned long sampled = copy_sample(turn);
    const size_t size = t->page_size;

    for (size_t w = first; w < last; w++) {
        unsigned long now = dirty[w], left, stored = t->stored[w];
        unsigned long here = elsewhere ? ~elsewhere[w] : ~0ul;

        if (!(now | t->dirty[w])) {
            continue;
        }
        counts->cold += __builtin_popcountl(now & ~t->untracked[w]);
        left = copy_unchanged(t, host, w,
                              t->untracked[w] & now & here & sampled);
        t->untracked[w] = (t->untracked[w] | t->dirty[w]) & now & ~left;
        t->dirty[w] = now & ~left;
        counts->untracked += __builtin_popcountl(t->untracked[w]);
        counts->dirty += __builtin_popcountl(now);
        counts->stale += __builtin_popcountl(left);
        now &= here & ~left;
        counts->copied += __builtin_popcountl(now & stored);
        counts->cleared += __builtin_popcountl(now & ~stored);
        if (leave_zeros) {
            now &= stored;
        }
        for (; now; now &= now - 1) {
            unsigned bit = __builtin_ctzl(now);
            uint64_t at = (w * BITS_PER_LONG + bit) * size;

            fetch_ahead(t, host, w, now & (now - 1));
            if (stored & (1ul << bit)) {
                memcpy(host + at, t->copy + at, size);
            } else {
                memset(host + at, 0, size);
            }
        }
    }
}

void ram_copy_spare(const RamCopy *t, unsigned long *dirty,
                    const unsigned long *present)
{
    for (size_t w = 0; w < t->words; w++) {
        dirty[w] &= t->stored[w] | present[w];
    }
}

static bool is_dirty_zero(const RamCopy *t, const unsigned long *dirty,
                          uint64_t page)
{
    return test_bit(page, dirty) && !test_bit(page, t->stored);
}

bool ram_copy_zeros(const RamCopy *t, const unsigned long *dirty,
                    uint64_t from, uint64_t *start, uint64_t *end)
{
    uint64_t page = from / t->page_size, pages = t->len / t->page_size;

    while (page < pages && !is_dirty_zero(t, dirty, page)) {
        /* skip words without a page */
        page = dirty[page / BITS_PER_LONG] & ~t->stored[page / BITS_PER_LONG] &
               (~0ul << (page % BITS_PER_LONG))
               ? page + 1 : (page / BITS_PER_LONG + 1) * BITS_PER_LONG;
    }
    if (page >= pages) {
        return false;
    }
    *start = page * t->page_size;
    while (page < pages && is_dirty_zero(t, dirty, page)) {
        page++;
    }
    *end = page * t->page_size;
    return true;
}

void ram_copy_compare(const RamCopy *t, uint8_t *host,
                      const unsigned long *present,
                      const unsigned long *elsewhere, size_t first, size_t last,
                      unsigned long *differing, RamCopyCounts *counts)
{
    const uint64_t pages = t->len / t->page_size;

    for (size_t w = first; w < last; w++) {
        unsigned long left = present ? present[w] | t->stored[w] : ~0ul;

        if (pages - w * BITS_PER_LONG < BITS_PER_LONG) {
            left &= (1ul << (pages % BITS_PER_LONG)) - 1;
        }
        left &= elsewhere ? ~elsewhere[w] : ~0ul;
        for (; left; left &= left - 1) {
            uint64_t page = w * BITS_PER_LONG + __builtin_ctzl(left);
            uint64_t at = page * t->page_size;

            counts->compared++;
            if (ram_copy_equals(t, host, page)) {
                continue;
            }
            counts->dirty++;
            if (differing) {
                differing[w] |= left & -left;
            }
            if (test_bit(page, t->stored)) {
                memcpy(host + at, t->copy + at, t->page_size);
                counts->copied++;
            } else {
                memset(host + at, 0, t->page_size);
                counts->cleared++;
            }
        }
    }
}
