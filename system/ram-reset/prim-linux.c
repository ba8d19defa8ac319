/*
 * What RAM reset needs of Linux
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifdef RAM_RESET_STANDALONE
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#else
#include "qemu/osdep.h"
#endif
#include <sys/auxv.h>
#include <sys/vfs.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif
#include "prim.h"

/* linux/magic.h; not every libc header set has both */
#define PRIM_TMPFS_MAGIC     0x01021994
#define PRIM_HUGETLBFS_MAGIC 0x958458f6

/* Documentation/admin-guide/mm/pagemap.rst */
#define PAGEMAP_PRESENT (UINT64_C(1) << 63)
#define PAGEMAP_SWAPPED (UINT64_C(1) << 62)

/*
 * Only memory file systems count their blocks exactly (pages in swap
 * included): others may hold bytes that st_blocks does not show yet.
 */
static bool file_is_empty(int fd)
{
    struct statfs fs;
    struct stat st;

    if (fstatfs(fd, &fs) < 0 || fstat(fd, &st) < 0) {
        return false;
    }
    if ((unsigned long)fs.f_type != PRIM_TMPFS_MAGIC &&
        (unsigned long)fs.f_type != PRIM_HUGETLBFS_MAGIC) {
        return false;
    }
    return st.st_blocks == 0;
}

PrimBacking prim_backing(const PrimMap *map)
{
    if (map->shared) {
        return map->fd < 0 ? PRIM_SHARED_ANON : PRIM_SHARED_FILE;
    }
    if (map->fd < 0 || file_is_empty(map->fd)) {
        return PRIM_PRIVATE_ZERO;
    }
    return PRIM_PRIVATE_FILE;
}

int prim_drop(const PrimMap *map, PrimBacking backing,
              uint64_t start, uint64_t len)
{
    int ret = -1;

    switch (backing) {
    case PRIM_PRIVATE_ZERO:
        ret = madvise(map->host + start, len, MADV_DONTNEED);
        break;
    case PRIM_SHARED_FILE:
        ret = fallocate(map->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                        map->fd_offset + start, len);
        break;
    case PRIM_SHARED_ANON:
        ret = madvise(map->host + start, len, MADV_REMOVE);
        break;
    case PRIM_PRIVATE_FILE:
        errno = EINVAL;
        break;
    }
    return ret < 0 ? -errno : 0;
}

void prim_clear(void *host, size_t len)
{
#ifdef __SSE2__
    __m128i zero = _mm_setzero_si128();
    __m128i *p = host;
    __m128i *end = (__m128i *)((char *)host + len);

    for (; p < end; p += 4) {
        _mm_stream_si128(p, zero);
        _mm_stream_si128(p + 1, zero);
        _mm_stream_si128(p + 2, zero);
        _mm_stream_si128(p + 3, zero);
    }
#else
    memset(host, 0, len);
#endif
}

void prim_clear_fence(void)
{
#ifdef __SSE2__
    _mm_sfence();
#endif
}

void prim_data_begin(PrimDataIter *it, const PrimMap *map,
                     PrimBacking backing, uint64_t from, uint64_t to)
{
    it->map = map;
    it->backing = backing;
    it->pos = from;
    it->to = to;
    it->pagemap = -1;
    it->buf_first = it->buf_len = 0;
    if (backing == PRIM_PRIVATE_ZERO) {
        it->pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    }
}

void prim_data_end(PrimDataIter *it)
{
    if (it->pagemap >= 0) {
        close(it->pagemap);
        it->pagemap = -1;
    }
}

/* Whether base page @page, counted from address 0, may hold data */
static bool pagemap_data(PrimDataIter *it, uint64_t page, uint64_t last)
{
    if (page - it->buf_first >= it->buf_len) {
        size_t want = sizeof(it->buf);
        ssize_t got;

        if ((last - page + 1) * sizeof(uint64_t) < want) {
            want = (last - page + 1) * sizeof(uint64_t);
        }
        do {
            got = pread(it->pagemap, it->buf, want, page * sizeof(uint64_t));
        } while (got < 0 && errno == EINTR);
        it->buf_first = page;
        it->buf_len = got > 0 ? got / sizeof(uint64_t) : 0;
        if (!it->buf_len) {
            return true;
        }
    }
    return it->buf[page - it->buf_first] & (PAGEMAP_PRESENT | PAGEMAP_SWAPPED);
}

static bool next_by_pagemap(PrimDataIter *it, uint64_t *start, uint64_t *end)
{
    unsigned long base = getauxval(AT_PAGESZ);
    uint64_t first = (uintptr_t)it->map->host / base;
    uint64_t page = first + it->pos / base;
    uint64_t to = first + (it->to + base - 1) / base;

    while (page < to && !pagemap_data(it, page, to - 1)) {
        page++;
    }
    if (page == to) {
        it->pos = it->to;
        return false;
    }
    *start = (page - first) * base;
    if (*start < it->pos) {
        *start = it->pos;
    }
    while (page < to && pagemap_data(it, page, to - 1)) {
        page++;
    }
    *end = (page - first) * base;
    if (*end > it->to) {
        *end = it->to;
    }
    it->pos = *end;
    return true;
}

static bool next_by_seek(PrimDataIter *it, uint64_t *start, uint64_t *end)
{
    uint64_t file = it->map->fd_offset;
    off_t data = lseek(it->map->fd, file + it->pos, SEEK_DATA);
    off_t hole;

    if (data < 0 && errno == ENXIO) {
        it->pos = it->to;
        return false;
    }
    *start = data < 0 ? it->pos : data - file;
    if (*start >= it->to) {
        it->pos = it->to;
        return false;
    }
    hole = data < 0 ? -1 : lseek(it->map->fd, data, SEEK_HOLE);
    *end = hole < 0 ? it->to : hole - file;
    if (*end > it->to) {
        *end = it->to;
    }
    it->pos = *end;
    return true;
}

bool prim_data_next(PrimDataIter *it, uint64_t *start, uint64_t *end)
{
    if (it->pos >= it->to) {
        return false;
    }
    if (it->backing == PRIM_SHARED_FILE) {
        return next_by_seek(it, start, end);
    }
    if (it->pagemap >= 0) {
        return next_by_pagemap(it, start, end);
    }
    *start = it->pos;
    *end = it->pos = it->to;
    return true;
}
