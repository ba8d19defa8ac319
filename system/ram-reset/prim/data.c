/*
 * prim: find the parts of a mapping that may hold data
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "system/ram-reset/prim/internal.h"

/* Documentation/admin-guide/mm/pagemap.rst */
#define PAGEMAP_PRESENT (UINT64_C(1) << 63)
#define PAGEMAP_SWAPPED (UINT64_C(1) << 62)

/* Categories of PAGEMAP_SCAN */
#define SCAN_PRESENT (1 << 3)
#define SCAN_SWAPPED (1 << 4)
#define SCAN_PFNZERO (1 << 5)

/*
 * Whether SEEK_DATA finds pages that were written through a mapping and are not
 * on the disk yet.  FUSE asks its server, which may not know of them.
 */
static bool seek_data_is_exact(int fd)
{
    switch (prim_file_system(fd)) {
    case PRIM_TMPFS_MAGIC:
    case PRIM_EXT4_MAGIC:
    case PRIM_XFS_MAGIC:
    case PRIM_BTRFS_MAGIC:
        return true;
    default:
        return false;
    }
}

static bool is_shmem(int fd)
{
    return prim_file_system(fd) == PRIM_TMPFS_MAGIC;
}

static bool next_is_all(PrimDataIter *it, uint64_t *start, uint64_t *end)
{
    *start = it->pos;
    *end = it->to;
    return true;
}

/* Whether base page @page, counted from address 0, may hold data */
static bool pagemap_data(PrimDataIter *it, uint64_t page, uint64_t last)
{
    if (page - it->buf_first >= it->buf_len) {
        size_t want = MIN(sizeof(it->buf.words),
                          (last - page + 1) * sizeof(uint64_t));
        ssize_t got;

        do {
            got = COUNT(it->map, pread(it->pagemap, it->buf.words, want,
                                       page * sizeof(uint64_t)));
        } while (got < 0 && errno == EINTR);
        it->buf_first = page;
        it->buf_len = got > 0 ? got / sizeof(uint64_t) : 0;
        if (!it->buf_len) {
            return true;
        }
    }
    return it->buf.words[page - it->buf_first] &
           (PAGEMAP_PRESENT | PAGEMAP_SWAPPED);
}

static bool next_by_pagemap(PrimDataIter *it, uint64_t *start, uint64_t *end)
{
    size_t base = prim_base_page_size();
    uint64_t first = (uintptr_t)it->map->host / base;
    uint64_t page = first + it->pos / base;
    uint64_t to = first + (it->to + base - 1) / base;

    while (page < to && !pagemap_data(it, page, to - 1)) {
        page++;
    }
    if (page == to) {
        return false;
    }
    *start = (page - first) * base;
    /* Do not ask for @page again: the answer may have changed. */
    do {
        page++;
    } while (page < to && pagemap_data(it, page, to - 1));
    *end = (page - first) * base;
    return true;
}

/*
 * Fetch more ranges from @it->scanned on; false if the kernel cannot list them
 */
static bool data_scan(PrimDataIter *it)
{
    size_t base = prim_base_page_size();
    uintptr_t host = (uintptr_t)it->map->host;
    PrimScanArg arg = {
        .size = sizeof(arg),
        .start = it->scanned,
        .end = host + (it->to + base - 1) / base * base,
        .vec = (uintptr_t)it->buf.ranges,
        .vec_len = sizeof(it->buf.ranges) / sizeof(it->buf.ranges[0]),
        /* Leave out the zero page, which a read maps */
        .category_inverted = SCAN_PFNZERO,
        .category_mask = SCAN_PFNZERO,
        /*
         * A swap entry in a file mapping is only a marker, not a page of data
         */
        .category_anyof_mask = SCAN_PRESENT |
                               (it->map->shared ? 0 : SCAN_SWAPPED),
        .return_mask = SCAN_PRESENT | SCAN_SWAPPED,
    };
    int n = COUNT(it->map, ioctl(it->pagemap, PRIM_SCAN_IOCTL, &arg));

    if (n < 0) {
        return false;
    }
    /* Linux 6.18 may have walk_end lie below the last range */
    it->scanned = n < (int)arg.vec_len ? arg.end : it->buf.ranges[n - 1].end;
    it->buf_first = 0;
    it->buf_len = n;
    return true;
}

/* Like next_by_pagemap(), but the time depends on the pages that are present */
static bool next_by_scan(PrimDataIter *it, uint64_t *start, uint64_t *end)
{
    uintptr_t host = (uintptr_t)it->map->host;

    while (it->buf_first == it->buf_len) {
        if (it->scanned >= host + it->to) {
            return false;
        }
        if (!data_scan(it)) {
            it->buf_len = 0;
            it->next = next_by_pagemap;
            return next_by_pagemap(it, start, end);
        }
    }
    *start = MAX(it->buf.ranges[it->buf_first].start, host) - host;
    *end = it->buf.ranges[it->buf_first].end - host;
    it->buf_first++;
    return true;
}

static bool begin_page_table(PrimDataIter *it)
{
    uintptr_t at = (uintptr_t)it->map->host + it->pos;

    it->pagemap = COUNT(it->map, open("/proc/self/pagemap",
                                      O_RDONLY | O_CLOEXEC));
    if (it->pagemap < 0) {
        return false;
    }
    it->scanned = at - at % prim_base_page_size();
    it->next = next_by_scan;
    return true;
}

/*
 * SEEK_DATA takes two calls for each run of pages.  Our page table has all
 * pages of the file if it has as many as the file.  It has fewer if some have
 * been swapped out, or another process has written to the file.
 */
static bool list_shared_file(PrimDataIter *it)
{
    uint64_t start, end, found = 0;
    bool listed = begin_page_table(it);
    struct stat st;

    while (listed && prim_data_next(it, &start, &end)) {
        found += end - start;
        listed = it->next == next_by_scan &&
                 prim_data_list_add(it, start, end);
    }
    if (it->pagemap >= 0) {
        COUNT(it->map, close(it->pagemap));
        it->pagemap = -1;
    }
    it->pos = 0;
    /*
     * Compare afterwards: a page may be swapped out at any time, and still
     * counts
     */
    return listed && it->list && it->next == next_by_scan &&
           COUNT(it->map, fstat(it->map->fd, &st)) == 0 &&
           (uint64_t)st.st_blocks * 512 == found;
}

static bool next_by_seek(PrimDataIter *it, uint64_t *start, uint64_t *end)
{
    uint64_t file = it->map->fd_offset;
    off_t from = file + it->pos;
    off_t data = COUNT(it->map, lseek(it->map->fd, from, SEEK_DATA));
    off_t hole;

    if (data < 0 && errno == ENXIO) {
        return false;
    }
    if (data < from) {
        return next_is_all(it, start, end);
    }
    *start = data - file;
    if (*start >= it->to) {
        return false;
    }
    hole = COUNT(it->map, lseek(it->map->fd, data, SEEK_HOLE));
    *end = hole > data ? hole - file : it->to;
    return true;
}

bool prim_data_begin(PrimDataIter *it, const PrimMap *map,
                     PrimBacking backing, uint64_t from, uint64_t to)
{
    it->map = map;
    it->pos = from;
    it->to = to;
    it->pagemap = -1;
    it->list = NULL;
    it->buf_first = it->buf_len = 0;
    it->next = next_is_all;
    if (prim_is_hugetlb(map)) {
        prim_data_begin_hugetlb(it);
        return true;
    }
    if (backing == PRIM_SHARED_FILE && seek_data_is_exact(map->fd)) {
        it->next = map->len == to && !from && is_shmem(map->fd) &&
                   list_shared_file(it) ? prim_data_next_by_list : next_by_seek;
    } else if (backing == PRIM_PRIVATE_ZERO) {
        begin_page_table(it);
    }
    return it->next != next_is_all;
}

bool prim_data_next(PrimDataIter *it, uint64_t *start, uint64_t *end)
{
    if (it->pos < it->to && it->next(it, start, end) && *start < it->to) {
        *start = MAX(*start, it->pos);
        *end = it->pos = MIN(*end, it->to);
        return true;
    }
    it->pos = it->to;
    return false;
}

void prim_data_end(PrimDataIter *it)
{
    free(it->list);
    it->list = NULL;
    if (it->pagemap >= 0) {
        COUNT(it->map, close(it->pagemap));
        it->pagemap = -1;
    }
}
