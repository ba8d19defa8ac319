/*
 * What the parts of prim share on Linux
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef RAM_RESET_PRIM_INTERNAL_H
#define RAM_RESET_PRIM_INTERNAL_H

#include <sys/auxv.h>
#include <sys/ioctl.h>
#include <sys/vfs.h>
#include "system/ram-reset/prim/prim.h"

/* linux/magic.h; not every libc header set has them */
#define PRIM_TMPFS_MAGIC     0x01021994
#define PRIM_HUGETLBFS_MAGIC 0x958458f6
#define PRIM_EXT4_MAGIC      0xef53
#define PRIM_XFS_MAGIC       0x58465342
#define PRIM_BTRFS_MAGIC     0x9123683e

/* PAGEMAP_SCAN, which linux/fs.h has from Linux 6.7 on */
typedef struct PrimScanArg {
    uint64_t size, flags, start, end, walk_end, vec, vec_len, max_pages;
    uint64_t category_inverted, category_mask, category_anyof_mask, return_mask;
} PrimScanArg;

#define PRIM_SCAN_IOCTL _IOWR('f', 16, PrimScanArg)

/* Evaluates to @call's value, and counts it */
#define COUNT(map, call) ({ if ((map)->calls) { ++*(map)->calls; } (call); })

static inline unsigned long prim_file_system(int fd)
{
    struct statfs fs;

    return fstatfs(fd, &fs) < 0 ? 0 : (unsigned long)fs.f_type;
}

static inline size_t prim_base_page_size(void)
{
    return getauxval(AT_PAGESZ);
}

static inline bool prim_is_hugetlb(const PrimMap *map)
{
    return map->page_size > prim_base_page_size();
}

/*
 * Punching a hole into hugetlbfs also gives up what mmap() had reserved, and
 * then the next touch may be a SIGBUS.  Any other mapping reserves anew, and
 * what it reserves belongs to the file.  -1 with errno set, or 0.
 */
int prim_reserve_hugepages(const PrimMap *map, uint64_t start, uint64_t len);

/* Add to @it->list, which is NULL at first; false if there is no memory */
bool prim_data_list_add(PrimDataIter *it, uint64_t start, uint64_t end);

/* For @it->next: what @it->list has */
bool prim_data_next_by_list(PrimDataIter *it, uint64_t *start, uint64_t *end);

/* For memory on hugetlbfs; leaves @it->next alone if all of it is data */
void prim_data_begin_hugetlb(PrimDataIter *it);

#endif
