/*
 * What RAM reset needs of the operating system
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef RAM_RESET_PRIM_PRIM_H
#define RAM_RESET_PRIM_PRIM_H

/*
 * This layer knows addresses, lengths and file descriptors.  It builds
 * without QEMU, keeps no state and prints nothing.
 *
 * Everywhere: pointers are not NULL; addresses, lengths and file offsets are
 * multiples of the mapping's page size unless said otherwise, and lengths
 * are above 0.  Functions that can fail return 0 or -errno.  They are safe
 * to call from any thread as long as nobody else changes the same range.
 */

/*
 * A mapping of memory.  @fd: the file behind it, or -1 for anonymous memory;
 * @fd_offset: where in that file @host lies; @noreserve: mapped with
 * MAP_NORESERVE.  A @page_size above the host's own means hugetlbfs.  @calls:
 * where system calls that concern the mapping are counted, or NULL.
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
 * What reads of a discarded page give, and so how a page can be discarded.
 * prim_backing() asks the kernel about the file; call it again when
 * somebody may have written to the file.
 */
typedef enum PrimBacking {
    /* Private memory with zeros below: anonymous, or over an empty file */
    PRIM_PRIVATE_ZERO,
    /* Private memory over a file with bytes of its own, or of unknown ones */
    PRIM_PRIVATE_FILE,
    /* Shared memory with a regular file to punch holes in */
    PRIM_SHARED_FILE,
    /* Shared memory without one: anonymous, or of a character device */
    PRIM_SHARED_OTHER,
} PrimBacking;

PrimBacking prim_backing(const PrimMap *map);

/*
 * Discard [@start, @start + @len) of the mapping: it reads zero afterwards, for
 * every process that maps the same shared memory.
 * Shared hugepages that were reserved are reserved again.
 * -EINVAL for PRIM_PRIVATE_FILE, whose discarded pages would show the file.
 * After a failure the range holds what it held, or zeros, page by page;
 * -ENOMEM may mean that somebody took the hugepages before they could be
 * reserved again.
 */
int prim_discard(const PrimMap *map, PrimBacking backing,
                 uint64_t start, uint64_t len);

/*
 * Fresh, zeroed memory of the kind that a mapping has, to take its place:
 * anonymous, or a memfd with the same name, size, page size and seals.
 */
typedef struct PrimFresh {
    uint8_t *host;
    int fd;
} PrimFresh;

/* Whether @fd is on hugetlbfs, which has nothing but hugepages */
bool prim_is_on_hugetlbfs(int fd);

/* Whether @fd is a memfd, a file that never had a name in a file system */
bool prim_is_memfd(int fd);

/*
 * Make @fresh, elsewhere.  @map must be anonymous or all of a memfd from
 * @fd_offset on.  Where there are not enough hugepages for both, those that
 * @map has populated are discarded first; it reads zero then.  That may not be
 * enough: what was reserved and never touched stays the old file's.
 * After a failure @map is as it was, or zero.
 */
int prim_fresh_map(const PrimMap *map, PrimFresh *fresh);

/*
 * Put @fresh where @map is, with the NUMA policy of @map but none of what
 * madvise() has set.  Pages of the old memory are discarded, its file is
 * closed, and the new one has the old one's descriptor number.
 * @fresh is gone afterwards.  After a failure @map is as it was, or zero, in
 * which case its NUMA policy may be lost; but -EFAULT means that there is no
 * memory at @map any more, or that its descriptor is of another file.
 */
int prim_fresh_swap(const PrimMap *map, PrimFresh *fresh);

/* Bytes from the start of a mapping */
typedef struct PrimRange {
    uint64_t start, len;
} PrimRange;

/*
 * Have parts of @map, which is private and anonymous, be private mappings of
 * @fd, where it has them from @fd_offset on; or, if that is -1, fresh anonymous
 * memory.  What was there is discarded.  They have no NUMA policy then, which
 * tmpfs would have for all who map the file, and nothing that madvise() has
 * set.  After a failure some are, and nobody says which; -EFAULT means that
 * there is no memory at one of them any more.
 */
int prim_overlay(const PrimMap *map, int fd, uint64_t fd_offset,
                 const PrimRange *ranges, size_t nr);

/*
 * Clear memory with stores that bypass the caches where the CPU has such.
 * The caller must prim_clear_fence() in the same thread before anybody else
 * reads the range.  @host and @len: multiples of 64, no page size needed.
 */
void prim_clear(void *host, size_t len);
void prim_clear_fence(void);

/*
 * Walk over what may hold bytes other than zero.  Ranges that the kernel
 * has no page for are passed over without being populated; where it does not
 * tell, everything counts as data.  So: never a byte too few.
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
 * prim_data_begin() returns false if the kernel does not tell, so that all is
 * data.  With PRIM_PRIVATE_ZERO it goes by our page table, whatever @map is: a
 * good guess for a file that is shared, and no more.
 *
 * An iterator lives in one thread.  Pages may be cleared or discarded behind
 * @end while it runs.
 */
typedef struct PrimDataIter {
    const PrimMap *map;
    /* The next range that ends behind @pos; prim_data_next() cuts it */
    bool (*next)(struct PrimDataIter *it, uint64_t *start, uint64_t *end);
    uint64_t pos, to;
    int pagemap;
    bool mapped_is_known;           /* hugetlbfs: by mincore() */
    uint64_t scanned;               /* the address that ranges[] reaches to */
    struct PrimDataList *list;      /* all of them, found beforehand */
    uint64_t buf_first, buf_len;    /* what of the buffer is in use */
    union {
        uint64_t words[4096];       /* of the pagemap, a base page each */
        struct {
            uint64_t start, end, categories;
        } ranges[1365];             /* by PAGEMAP_SCAN, addresses */
    } buf;
} PrimDataIter;

bool prim_data_begin(PrimDataIter *it, const PrimMap *map,
                     PrimBacking backing, uint64_t from, uint64_t to);
bool prim_data_next(PrimDataIter *it, uint64_t *start, uint64_t *end);
void prim_data_end(PrimDataIter *it);

/*
 * Whether our page table has the hugepage at @offset; true if that is not
 * known, and wherever the file is not one that we might write to by its name.
 */
bool prim_hugepage_mapped(const PrimMap *map, uint64_t offset);

/*
 * pread() and pwrite(), repeated until all @len bytes are done.  They return
 * how many are; if these are fewer, errno is set, to EIO at the end of a file.
 */
size_t prim_read_all(int fd, void *buf, size_t len, uint64_t offset);
size_t prim_write_all(int fd, const void *buf, size_t len, uint64_t offset);

/*
 * What makes a file larger than RLIMIT_FSIZE allows, or writes behind that,
 * fails with EFBIG and raises a signal that would end the process.  Between
 * these two, in one thread, it only fails.  errno is as it was.
 */
typedef struct PrimLimit {
    sigset_t before;
    bool pending;
} PrimLimit;

void prim_limit_begin(PrimLimit *limit);
void prim_limit_end(const PrimLimit *limit);

#endif
