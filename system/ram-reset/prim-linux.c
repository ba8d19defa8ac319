/*
 * What RAM reset needs of Linux
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifdef RAM_RESET_STANDALONE
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#else
#include "qemu/osdep.h"
#endif
#include <linux/mempolicy.h>
#include <sys/auxv.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif
#include "prim.h"

/* linux/magic.h; not every libc header set has them */
#define PRIM_TMPFS_MAGIC     0x01021994
#define PRIM_HUGETLBFS_MAGIC 0x958458f6
#define PRIM_EXT4_MAGIC      0xef53
#define PRIM_XFS_MAGIC       0x58465342
#define PRIM_BTRFS_MAGIC     0x9123683e

#ifndef MFD_HUGE_SHIFT
#define MFD_HUGE_SHIFT 26
#endif

/* Documentation/admin-guide/mm/pagemap.rst */
#define PAGEMAP_PRESENT (UINT64_C(1) << 63)
#define PAGEMAP_SWAPPED (UINT64_C(1) << 62)

/* Evaluates to @call's value, and counts it */
#define COUNT(map, call) ({ if ((map)->calls) { ++*(map)->calls; } (call); })

static unsigned long file_system(int fd)
{
    struct statfs fs;

    return fstatfs(fd, &fs) < 0 ? 0 : (unsigned long)fs.f_type;
}

/*
 * Only memory file systems count their blocks exactly (pages in swap
 * included): others may hold bytes that st_blocks does not show yet.
 */
static bool file_is_empty(int fd)
{
    unsigned long magic = file_system(fd);
    struct stat st;

    return (magic == PRIM_TMPFS_MAGIC || magic == PRIM_HUGETLBFS_MAGIC) &&
           fstat(fd, &st) == 0 && st.st_blocks == 0;
}

/*
 * Whether SEEK_DATA knows of pages that were written through a mapping and
 * are not on the disk yet.  FUSE, for one, asks its server, who may not.
 */
static bool seek_data_is_exact(int fd)
{
    switch (file_system(fd)) {
    case PRIM_TMPFS_MAGIC:
    case PRIM_EXT4_MAGIC:
    case PRIM_XFS_MAGIC:
    case PRIM_BTRFS_MAGIC:
        return true;
    default:
        return false;
    }
}

static size_t base_page_size(void)
{
    return getauxval(AT_PAGESZ);
}

static bool is_hugetlb(const PrimMap *map)
{
    return map->page_size > base_page_size();
}

static bool file_is_regular(int fd)
{
    struct stat st;

    return fstat(fd, &st) == 0 && S_ISREG(st.st_mode);
}

PrimBacking prim_backing(const PrimMap *map)
{
    if (map->shared) {
        return map->fd >= 0 && file_is_regular(map->fd) ? PRIM_SHARED_FILE
                                                        : PRIM_SHARED_OTHER;
    }
    if (map->fd < 0 || file_is_empty(map->fd)) {
        return PRIM_PRIVATE_ZERO;
    }
    return PRIM_PRIVATE_FILE;
}

/*
 * Punching a hole into hugetlbfs also gives up what mmap() had reserved, and
 * then the next touch may be a SIGBUS.  Any other mapping reserves anew, and
 * what it reserves belongs to the file.
 */
static int reserve_hugepages(const PrimMap *map, uint64_t start, uint64_t len)
{
    void *p = COUNT(map, mmap(NULL, len, PROT_NONE, MAP_SHARED, map->fd,
                              map->fd_offset + start));

    return p == MAP_FAILED ? -1 : COUNT(map, munmap(p, len));
}

static int drop_shared_file(const PrimMap *map, uint64_t start, uint64_t len)
{
    if (COUNT(map, fallocate(map->fd,
                             FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                             map->fd_offset + start, len)) < 0) {
        return -1;
    }
    return is_hugetlb(map) && !map->noreserve
           ? reserve_hugepages(map, start, len) : 0;
}

int prim_drop(const PrimMap *map, PrimBacking backing,
              uint64_t start, uint64_t len)
{
    int ret = -1;

    switch (backing) {
    case PRIM_PRIVATE_ZERO:
        ret = COUNT(map, madvise(map->host + start, len, MADV_DONTNEED));
        break;
    case PRIM_SHARED_FILE:
        ret = drop_shared_file(map, start, len);
        break;
    case PRIM_SHARED_OTHER:
        ret = COUNT(map, madvise(map->host + start, len, MADV_REMOVE));
        break;
    case PRIM_PRIVATE_FILE:
        errno = EINVAL;
        break;
    }
    return ret < 0 ? -errno : 0;
}

#define MEMFD_LINK "/memfd:"
#define DELETED    " (deleted)"

/* The name that @fd was created with, into @name */
static bool memfd_name(int fd, char *name, size_t size)
{
    char path[64];
    ssize_t n;

    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    n = readlink(path, name, size - 1);
    if (n < 0) {
        return false;
    }
    name[n] = '\0';
    if (strncmp(name, MEMFD_LINK, strlen(MEMFD_LINK))) {
        return false;
    }
    n -= strlen(MEMFD_LINK);
    memmove(name, name + strlen(MEMFD_LINK), n + 1);
    if (n >= (ssize_t)strlen(DELETED) &&
        !strcmp(name + n - strlen(DELETED), DELETED)) {
        name[n - strlen(DELETED)] = '\0';
    }
    return true;
}

bool prim_is_memfd(int fd)
{
    char name[PATH_MAX];

    return memfd_name(fd, name, sizeof(name));
}

static int fresh_memfd(const PrimMap *map)
{
    unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
    char name[PATH_MAX];
    struct stat st;
    int fd;

    if (!COUNT(map, memfd_name(map->fd, name, sizeof(name)))) {
        errno = EINVAL;
        return -1;
    }
    if (is_hugetlb(map)) {
        flags |= MFD_HUGETLB | __builtin_ctzll(map->page_size) << MFD_HUGE_SHIFT;
    }
    if (COUNT(map, fstat(map->fd, &st)) < 0) {
        return -1;
    }
    fd = COUNT(map, memfd_create(name, flags));
    if (fd >= 0 && COUNT(map, ftruncate(fd, st.st_size)) < 0) {
        int err = errno;

        close(fd);
        errno = err;
        return -1;
    }
    return fd;
}

static uint8_t *fresh_mmap(const PrimMap *map, int fd)
{
    int flags = map->shared ? MAP_SHARED : MAP_PRIVATE;

    flags |= fd < 0 ? MAP_ANONYMOUS : 0;
    flags |= map->noreserve ? MAP_NORESERVE : 0;
    return COUNT(map, mmap(NULL, map->len, PROT_READ | PROT_WRITE, flags, fd,
                           fd < 0 ? 0 : map->fd_offset));
}

/* Give up all hugepages of @map, with what was reserved for it */
static void give_up_hugepages(const PrimMap *map)
{
    if (!map->shared) {
        COUNT(map, madvise(map->host, map->len, MADV_DONTNEED));
    }
    COUNT(map, fallocate(map->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                         map->fd_offset, map->len));
}

static int copy_seals(const PrimMap *map, int fd)
{
    int seals = COUNT(map, fcntl(map->fd, F_GET_SEALS));

    /* Without sealing the file has F_SEAL_SEAL, and nothing is to be added */
    return seals < 0 ? 0 : COUNT(map, fcntl(fd, F_ADD_SEALS, seals));
}

static int close_fresh(const PrimMap *map, const PrimFresh *fresh, int ret)
{
    if (fresh->host != MAP_FAILED) {
        COUNT(map, munmap(fresh->host, map->len));
    }
    if (fresh->fd >= 0) {
        COUNT(map, close(fresh->fd));
    }
    return ret;
}

int prim_fresh_map(const PrimMap *map, PrimFresh *fresh)
{
    fresh->fd = map->fd < 0 ? -1 : fresh_memfd(map);
    if (map->fd >= 0 && fresh->fd < 0) {
        return -errno;
    }
    fresh->host = fresh_mmap(map, fresh->fd);
    if (fresh->host == MAP_FAILED && errno == ENOMEM && is_hugetlb(map) &&
        map->fd >= 0) {
        give_up_hugepages(map);
        fresh->host = fresh_mmap(map, fresh->fd);
        if (fresh->host == MAP_FAILED && map->shared && !map->noreserve) {
            reserve_hugepages(map, 0, map->len);
            errno = ENOMEM;
        }
    }
    if (fresh->host == MAP_FAILED ||
        (fresh->fd >= 0 && copy_seals(map, fresh->fd) < 0)) {
        return close_fresh(map, fresh, -errno);
    }
    return 0;
}

static bool is_mapped(const PrimMap *map)
{
    unsigned char vec[1];

    return mincore(map->host, base_page_size(), vec) == 0;
}

typedef struct Policy {
    int mode;
    unsigned long nodes[1024 / (8 * sizeof(long))];
} Policy;

/* Where the kernel has no NUMA there is no policy */
static void get_numa_policy(const PrimMap *map, Policy *policy)
{
    if (COUNT(map, syscall(SYS_get_mempolicy, &policy->mode, policy->nodes,
                           8 * sizeof(policy->nodes), map->host,
                           MPOL_F_ADDR)) < 0) {
        policy->mode = MPOL_DEFAULT;
    }
}

static int set_numa_policy(const PrimMap *map, const Policy *policy)
{
    if (policy->mode == MPOL_DEFAULT) {
        return 0;
    }
    return COUNT(map, syscall(SYS_mbind, map->host, map->len, policy->mode,
                              policy->nodes, 8 * sizeof(policy->nodes), 0));
}

/*
 * mmap() over the old mapping leaves a hole if it fails.  Of a file it does
 * not: the mapping beside has shown that it can be mapped, and has reserved
 * what there is to be reserved.  Anonymous memory counts against the host's
 * limits, so that mapping is moved.
 */
static void *replace(const PrimMap *map, const PrimFresh *fresh)
{
    int flags = MAP_FIXED | (map->shared ? MAP_SHARED : MAP_PRIVATE) |
                (map->noreserve ? MAP_NORESERVE : 0);

    if (fresh->fd < 0) {
        return COUNT(map, mremap(fresh->host, map->len, map->len,
                                 MREMAP_MAYMOVE | MREMAP_FIXED, map->host));
    }
    return COUNT(map, mmap(map->host, map->len, PROT_READ | PROT_WRITE, flags,
                           fresh->fd, map->fd_offset));
}

int prim_fresh_swap(const PrimMap *map, PrimFresh *fresh)
{
    Policy policy = { 0 };

    get_numa_policy(map, &policy);
    if (replace(map, fresh) == MAP_FAILED) {
        return close_fresh(map, fresh, is_mapped(map) ? -errno : -EFAULT);
    }
    if (fresh->fd >= 0) {
        int flags = COUNT(map, fcntl(map->fd, F_GETFD));

        /* Cannot fail: both are open */
        COUNT(map, dup3(fresh->fd, map->fd,
                        flags & FD_CLOEXEC ? O_CLOEXEC : 0));
        close_fresh(map, fresh, 0);
    }
    return set_numa_policy(map, &policy) < 0 ? -errno : 0;
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

static bool next_is_all(PrimDataIter *it, uint64_t *start, uint64_t *end)
{
    *start = it->pos;
    *end = it->pos = it->to;
    return true;
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
            got = COUNT(it->map, pread(it->pagemap, it->buf, want,
                                       page * sizeof(uint64_t)));
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
    size_t base = base_page_size();
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
    if (*end > it->to) {
        *end = it->to;
    }
    it->pos = *end;
    return true;
}

bool prim_hugepage_mapped(const PrimMap *map, uint64_t offset)
{
    unsigned char vec[1];

    return COUNT(map, mincore(map->host + offset, base_page_size(), vec)) < 0 ||
           (vec[0] & 1);
}

/* Reading a hole by read() does not populate it, other than by a load */
static bool hugepage_has_content(const PrimMap *map, uint64_t offset)
{
    char buf[64 * 1024];
    uint64_t at;

    for (at = 0; at < map->page_size; at += sizeof(buf)) {
        ssize_t n = COUNT(map, pread(map->fd, buf, sizeof(buf),
                                     map->fd_offset + offset + at));

        if (n != (ssize_t)sizeof(buf) || buf[0] ||
            memcmp(buf, buf + 1, sizeof(buf) - 1)) {
            return true;
        }
    }
    return false;
}

/*
 * hugetlbfs has no SEEK_DATA of its own, and a page that another process has
 * populated is not in our page table.  If all pages that the file has are in
 * it, then there is nothing where our page table has none.
 */
static bool hugetlb_holes_are_zero(const PrimMap *map)
{
    uint64_t mapped = 0, at;
    struct stat st;

    if (map->fd < 0) {
        return true;
    }
    if (COUNT(map, fstat(map->fd, &st)) < 0) {
        return false;
    }
    if (!map->shared) {
        return st.st_blocks == 0;
    }
    for (at = 0; at < map->len; at += map->page_size) {
        mapped += prim_hugepage_mapped(map, at);
    }
    return (uint64_t)st.st_blocks * 512 == mapped * map->page_size;
}

/* A file without holes: no need to ask for each page */
static bool hugetlb_is_full(const PrimMap *map)
{
    struct stat st;

    return map->shared && map->fd >= 0 &&
           COUNT(map, fstat(map->fd, &st)) == 0 &&
           (uint64_t)st.st_blocks * 512 == (uint64_t)st.st_size;
}

static bool hugetlb_data(PrimDataIter *it, uint64_t offset)
{
    return prim_hugepage_mapped(it->map, offset) ||
           (!it->holes_are_zero && hugepage_has_content(it->map, offset));
}

static bool next_by_hugepage(PrimDataIter *it, uint64_t *start, uint64_t *end)
{
    uint64_t size = it->map->page_size;
    uint64_t at = it->pos - it->pos % size;

    while (at < it->to && !hugetlb_data(it, at)) {
        at += size;
    }
    if (at >= it->to) {
        return false;
    }
    *start = at < it->pos ? it->pos : at;
    do {
        at += size;
    } while (at < it->to && hugetlb_data(it, at));
    *end = at < it->to ? at : it->to;
    it->pos = *end;
    return true;
}

void prim_data_begin(PrimDataIter *it, const PrimMap *map,
                     PrimBacking backing, uint64_t from, uint64_t to)
{
    it->map = map;
    it->pos = from;
    it->to = to;
    it->pagemap = -1;
    it->buf_first = it->buf_len = 0;
    it->next = next_is_all;
    if (is_hugetlb(map)) {
        if (!hugetlb_is_full(map)) {
            it->holes_are_zero = hugetlb_holes_are_zero(map);
            it->next = next_by_hugepage;
        }
    } else if (backing == PRIM_SHARED_FILE && seek_data_is_exact(map->fd)) {
        it->next = next_by_seek;
    } else if (backing == PRIM_PRIVATE_ZERO) {
        it->pagemap = COUNT(map, open("/proc/self/pagemap",
                                      O_RDONLY | O_CLOEXEC));
        if (it->pagemap >= 0) {
            it->next = next_by_pagemap;
        }
    }
}

bool prim_data_next(PrimDataIter *it, uint64_t *start, uint64_t *end)
{
    if (it->pos < it->to && it->next(it, start, end)) {
        return true;
    }
    it->pos = it->to;
    return false;
}

void prim_data_end(PrimDataIter *it)
{
    if (it->pagemap >= 0) {
        COUNT(it->map, close(it->pagemap));
        it->pagemap = -1;
    }
}
