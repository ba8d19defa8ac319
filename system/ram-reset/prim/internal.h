/*
 * prim: declarations shared by the files of prim on Linux
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
#define PRIM_F2FS_MAGIC      0xf2f52010
#define PRIM_ZFS_MAGIC       0x2fc12fc1
#define PRIM_BCACHEFS_MAGIC  0xca451a4e
#define PRIM_OVERLAYFS_MAGIC 0x794c7630

/* The argument of PAGEMAP_SCAN; linux/fs.h has it from Linux 6.7 on */
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
 * Punching a hole into hugetlbfs also drops the reservation of mmap(), so that
 * the next touch may raise SIGBUS.  This reserves the hugepages again: any
 * further mapping reserves them, and the reservation belongs to the file.  0,
 * or -1 with errno set.
 */
int prim_reserve_hugepages(const PrimMap *map, uint64_t start, uint64_t len);

/* Add a range to @it->list, which starts as NULL; false if out of memory */
bool prim_data_list_add(PrimDataIter *it, uint64_t start, uint64_t end);

/* A function for @it->next that walks @it->list */
bool prim_data_next_by_list(PrimDataIter *it, uint64_t *start, uint64_t *end);

/* Begin for memory on hugetlbfs; leave @it->next alone if all of it is data */
void prim_data_begin_hugetlb(PrimDataIter *it);

#endif
