/*
 * prim: find the parts of a hugetlbfs mapping that may hold data
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/cutils.h"
#include "system/ram-reset/prim/internal.h"

bool prim_hugepage_mapped(const PrimMap *map, uint64_t offset)
{
    unsigned char vec[1];

    return COUNT(map, mincore(map->host + offset, prim_base_page_size(),
                              vec)) < 0 || (vec[0] & 1);
}

/*
 * mincore() reports all pages as present to a process that may not write to the
 * file, such as QEMU after -run-with user=.
 */
static bool mincore_is_exact(const PrimMap *map)
{
    char path[64];
    struct stat st;

    if (map->fd < 0) {
        return true;
    }
    snprintf(path, sizeof(path), "/proc/self/fd/%d", map->fd);
    return (COUNT(map, fstat(map->fd, &st)) == 0 && st.st_uid == geteuid()) ||
           COUNT(map, faccessat(AT_FDCWD, path, W_OK, AT_EACCESS)) == 0;
}

/* read() does not populate a hole, but a load from memory does */
static bool hugepage_has_content(const PrimMap *map, uint64_t offset)
{
    char buf[64 * 1024];
    uint64_t at;

    for (at = 0; at < map->page_size; at += sizeof(buf)) {
        ssize_t n = COUNT(map, pread(map->fd, buf, sizeof(buf),
                                     map->fd_offset + offset + at));

        if (n != (ssize_t)sizeof(buf) || !buffer_is_zero(buf, sizeof(buf))) {
            return true;
        }
    }
    return false;
}

/* List all pages in our page table; false if the kernel cannot list them */
static bool list_hugepages(PrimDataIter *it, uint64_t *found)
{
    const PrimMap *map = it->map;
    size_t base = prim_base_page_size();
    unsigned char *vec = (unsigned char *)&it->buf;
    uint64_t first = 0, told = 0, start = 0, at;
    bool mapped = false;

    for (at = 0; at < map->len; at += map->page_size) {
        bool was_mapped = mapped;

        if (at >= told) {
            first = at;
            told = MIN(at + sizeof(it->buf) * base, map->len);
            if (COUNT(map, mincore(map->host + at, told - at, vec)) < 0) {
                return false;
            }
        }
        mapped = vec[(at - first) / base] & 1;
        *found += mapped ? map->page_size : 0;
        if (mapped && !was_mapped) {
            start = at;
        } else if (!mapped && was_mapped &&
                   !prim_data_list_add(it, start, at)) {
            return false;
        }
    }
    return !mapped || prim_data_list_add(it, start, map->len);
}

/*
 * hugetlbfs has no SEEK_DATA of its own, and our page table lacks the pages
 * that another process has populated.  If it has as many pages as the file,
 * there is no data elsewhere.
 */
static bool list_hugetlb(PrimDataIter *it)
{
    const PrimMap *map = it->map;
    uint64_t found = 0;
    struct stat st;

    return it->mapped_is_known && list_hugepages(it, &found) &&
           (map->fd < 0 ||
            (COUNT(map, fstat(map->fd, &st)) == 0 &&
             (uint64_t)st.st_blocks * 512 == (map->shared ? found : 0)));
}

/* A file without holes: there is no need to ask for each page */
static bool hugetlb_is_full(const PrimMap *map)
{
    struct stat st;

    return map->shared && map->fd >= 0 &&
           COUNT(map, fstat(map->fd, &st)) == 0 &&
           (uint64_t)st.st_blocks * 512 == (uint64_t)st.st_size;
}

static bool hugetlb_data(PrimDataIter *it, uint64_t offset)
{
    return (it->mapped_is_known && prim_hugepage_mapped(it->map, offset)) ||
           hugepage_has_content(it->map, offset);
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
    *start = at;
    do {
        at += size;
    } while (at < it->to && hugetlb_data(it, at));
    *end = at;
    return true;
}

void prim_data_begin_hugetlb(PrimDataIter *it)
{
    const PrimMap *map = it->map;

    if (hugetlb_is_full(map)) {
        return;
    }
    it->mapped_is_known = !map->shared || mincore_is_exact(map);
    it->next = list_hugetlb(it) ? prim_data_next_by_list : next_by_hugepage;
}
