/*
 * prim: operations on memory that depend on the operating system
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef RAM_RESET_PRIM_PRIM_H
#define RAM_RESET_PRIM_PRIM_H

/*
 * This layer knows addresses, lengths and file descriptors.  It builds without
 * QEMU, has no state and prints nothing.
 *
 * Unless said otherwise: pointers are not NULL; addresses, lengths and file
 * offsets are multiples of the mapping's page size, and lengths are above 0.
 * Functions that can fail return 0 or -errno.  Any thread may call them while
 * no other thread changes the same range.
 */

/*
 * A mapping of memory.  @fd: the file behind it, or -1 for anonymous memory;
 * @fd_offset: the offset of @host in that file; @noreserve: mapped with
 * MAP_NORESERVE.  A @page_size above the host's own means hugetlbfs.  @calls:
 * counts system calls that concern the mapping, or NULL.
 */
typedef struct PrimMap {
    uint8_t *host;
    uint64_t len;
    size_t page_size;
    int fd;
    uint64_t fd_offset;
    bool shared;
    bool noreserve;
    uint64_t *calls;
} PrimMap;

/*
 * The content that a discarded page shows, and thus the way to discard it.
 * prim_backing() asks the kernel about the file; call it again if the file may
 * have been written to.
 */
typedef enum PrimBacking {
    /* Private memory with zeros below: anonymous, or over an empty file */
    PRIM_PRIVATE_ZERO,
    /* Private memory over a file with data, or whose content is unknown */
    PRIM_PRIVATE_FILE,
    /* Shared memory of a regular file, in which holes can be punched */
    PRIM_SHARED_FILE,
    /* Other shared memory: anonymous, or of a character device */
    PRIM_SHARED_OTHER,
} PrimBacking;

PrimBacking prim_backing(const PrimMap *map);

/*
 * Discard [@start, @start + @len) of the mapping.  It reads as zero afterwards,
 * in every process that maps the same shared memory.  Shared hugepages that
 * were reserved are reserved again.  -EINVAL for PRIM_PRIVATE_FILE, whose
 * discarded pages would show the file.  After a failure each page holds either
 * its old content or zeros; -ENOMEM may mean that another process took the
 * hugepages before they could be reserved again.
 */
int prim_discard(const PrimMap *map, PrimBacking backing,
                 uint64_t start, uint64_t len);

/*
 * Fresh, zeroed memory of the same kind as a mapping, made to take its place:
 * anonymous, or a memfd with the same name, size, page size and seals.
 */
typedef struct PrimFresh {
    uint8_t *host;
    int fd;
} PrimFresh;

/* Whether @fd is on hugetlbfs, where all pages are hugepages */
bool prim_is_on_hugetlbfs(int fd);

/*
 * Whether @fd is on a file system that is known to be of this host alone.  One
 * of a server, or in user space, may grant a lease that a change elsewhere does
 * not break.
 */
bool prim_is_local_file(int fd);

/* Whether both are the same file or directory; false if it cannot be known */
bool prim_is_same_file(int a, int b);

/* Whether @fd is a memfd, a file that never had a name in a file system */
bool prim_is_memfd(int fd);

/*
 * Make @fresh, at another address.  @map must be anonymous, or all of a memfd
 * from @fd_offset on.  If there are not enough hugepages for both, the pages
 * that @map has populated are discarded first; it then reads as zero.  That may
 * still not be enough: hugepages that were reserved and never touched stay with
 * the old file.  After a failure @map is unchanged, or zero.
 */
int prim_fresh_map(const PrimMap *map, PrimFresh *fresh);

/*
 * Put @fresh at the address of @map, with the NUMA policy of @map but without
 * the advice set by madvise().  Pages of the old memory are discarded and its
 * file is closed.  The new file gets its descriptor number.  @fresh must not be
 * used afterwards.  After a failure @map is unchanged, or it is zero and may
 * have lost its NUMA policy. -EFAULT means that there is no memory at @map any
 * more, or that its descriptor is of another file.
 */
int prim_fresh_swap(const PrimMap *map, PrimFresh *fresh);

/* A range, in bytes from the start of a mapping */
typedef struct PrimRange {
    uint64_t start, len;
} PrimRange;

/*
 * Replace parts of @map, which is private and anonymous, by private mappings of
 * @fd, where the same parts lie from @fd_offset on; or, if @fd is -1, by fresh
 * anonymous memory.  The old content is discarded.  The new parts have no
 * advice of madvise(), and no NUMA policy: tmpfs would apply it to every
 * process that maps the file.  After a failure an unknown number of parts is
 * replaced; -EFAULT means that there is no memory at one of them any more.
 */
int prim_overlay(const PrimMap *map, int fd, uint64_t fd_offset,
                 const PrimRange *ranges, size_t nr);

/*
 * Clear memory with stores that bypass the caches if the CPU has such stores.
 * The caller must call prim_clear_fence() in the same thread before another
 * thread reads the range.  @host and @len are multiples of 64, not of the page
 * size.
 */
void prim_clear(void *host, size_t len);
void prim_clear_fence(void);

/*
 * Walk over the ranges that may hold bytes other than zero.  Ranges that have
 * no page in the kernel are skipped, and are not populated.  If the kernel
 * cannot list them, all is data.  Thus no data is ever skipped.
 *
 *     PrimDataIter it;
 *     uint64_t start, end;
 *
 *     prim_data_begin(&it, map, backing, from, to);
 *     while (prim_data_next(&it, &start, &end)) {
 *         ...offsets [start, end) into the mapping, in rising order...
 *     }
 *     prim_data_end(&it);
 *
 * prim_data_begin() returns false if the kernel cannot list the ranges, so that
 * all is data.  With PRIM_PRIVATE_ZERO it reads our page table, whatever kind
 * @map is: for a shared file this is a good guess, and no more.
 *
 * An iterator belongs to one thread.  Pages before @end may be cleared or
 * discarded while it runs.
 */
typedef struct PrimDataIter {
    const PrimMap *map;
    /* The next range that ends behind @pos; prim_data_next() cuts it */
    bool (*next)(struct PrimDataIter *it, uint64_t *start, uint64_t *end);
    uint64_t pos, to;
    int pagemap;
    bool mapped_is_known;           /* hugetlbfs: by mincore() */
    uint64_t scanned;               /* address at which ranges[] ends */
    struct PrimDataList *list;      /* all ranges, found beforehand */
    uint64_t buf_first, buf_len;    /* used part of the buffer */
    union {
        uint64_t words[4096];       /* pagemap, a word a base page */
        struct {
            uint64_t start, end, categories;
        } ranges[1365];             /* PAGEMAP_SCAN, addresses */
    } buf;
} PrimDataIter;

bool prim_data_begin(PrimDataIter *it, const PrimMap *map,
                     PrimBacking backing, uint64_t from, uint64_t to);
bool prim_data_next(PrimDataIter *it, uint64_t *start, uint64_t *end);
void prim_data_end(PrimDataIter *it);

/*
 * Whether our page table has the hugepage at @offset.  Also true if that is
 * unknown, as it is if we may not write to the file by its name.
 */
bool prim_hugepage_mapped(const PrimMap *map, uint64_t offset);

/*
 * pread() and pwrite(), repeated until all @len bytes are done.  They return
 * how many are; if these are fewer, errno is set, to EIO at the end of a file.
 */
size_t prim_read_all(int fd, void *buf, size_t len, uint64_t offset);
size_t prim_write_all(int fd, const void *buf, size_t len, uint64_t offset);

/*
 * A call that makes a file larger than RLIMIT_FSIZE, or writes beyond that,
 * fails with EFBIG and raises a signal that would end the process.  Between
 * these two functions, in one thread, it only fails.  They leave errno alone.
 */
typedef struct PrimLimit {
    sigset_t before;
    bool pending;
} PrimLimit;

void prim_limit_begin(PrimLimit *limit);
void prim_limit_end(const PrimLimit *limit);

#endif
