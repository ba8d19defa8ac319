/*
 * prim: discard and clear memory
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "system/ram-reset/prim/internal.h"
#ifdef __SSE2__
#include <emmintrin.h>
#endif

bool prim_is_on_hugetlbfs(int fd)
{
    return prim_file_system(fd) == PRIM_HUGETLBFS_MAGIC;
}

bool prim_is_local_file(int fd)
{
    switch (prim_file_system(fd)) {
    case PRIM_TMPFS_MAGIC:
    case PRIM_EXT4_MAGIC:
    case PRIM_XFS_MAGIC:
    case PRIM_BTRFS_MAGIC:
    case PRIM_F2FS_MAGIC:
    case PRIM_ZFS_MAGIC:
    case PRIM_BCACHEFS_MAGIC:
    case PRIM_OVERLAYFS_MAGIC:
        return true;
    default:
        return false;
    }
}

bool prim_is_same_file(int a, int b)
{
    struct stat st, other;

    return fstat(a, &st) == 0 && fstat(b, &other) == 0 &&
           st.st_dev == other.st_dev && st.st_ino == other.st_ino;
}

/*
 * Only memory file systems count their blocks exactly (pages in swap included):
 * on others st_blocks may lag behind the data.
 */
static bool file_is_empty(int fd)
{
    unsigned long magic = prim_file_system(fd);
    struct stat st;

    return (magic == PRIM_TMPFS_MAGIC || magic == PRIM_HUGETLBFS_MAGIC) &&
           fstat(fd, &st) == 0 && st.st_blocks == 0;
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

int prim_reserve_hugepages(const PrimMap *map, uint64_t start, uint64_t len)
{
    void *p = COUNT(map, mmap(NULL, len, PROT_NONE, MAP_SHARED, map->fd,
                              map->fd_offset + start));

    return p == MAP_FAILED ? -1 : COUNT(map, munmap(p, len));
}

static int discard_shared_file(const PrimMap *map, uint64_t start, uint64_t len)
{
    if (COUNT(map, fallocate(map->fd,
                             FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                             map->fd_offset + start, len)) < 0) {
        return -1;
    }
    return prim_is_hugetlb(map) && !map->noreserve
           ? prim_reserve_hugepages(map, start, len) : 0;
}

int prim_discard(const PrimMap *map, PrimBacking backing,
                 uint64_t start, uint64_t len)
{
    int ret = -1;

    switch (backing) {
    case PRIM_PRIVATE_ZERO:
        ret = COUNT(map, madvise(map->host + start, len, MADV_DONTNEED));
        break;
    case PRIM_SHARED_FILE:
        ret = discard_shared_file(map, start, len);
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
