/*
 * prim: find the pages that have been written to
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef RAM_RESET_PRIM_WATCH_H
#define RAM_RESET_PRIM_WATCH_H

/*
 * Linux reports writes from 6.7 on, to any user.  A userfaultfd write-protects
 * pages asynchronously: the first write to a page clears a bit of its page
 * table entry, whether a thread, a system call, or KVM for a guest writes
 * through our address space.  Nobody waits for us.
 *
 * It does not report writes through another mapping of the same memory, so that
 * it is for private mappings only; nor writes to pages that a device or the
 * kernel has pinned before; nor that a page is discarded.
 *
 * Memory belongs to at most one userfaultfd: another one gets EBUSY.
 */
typedef struct PrimWatch {
    int uffd, pagemap;
} PrimWatch;

/* 0; or -errno if the kernel lacks this, and then there is nothing to close */
int prim_watch_open(PrimWatch *w);

/* Stop watching all memory */
void prim_watch_close(PrimWatch *w);

/* Watch memory, which counts as not written to. 0 or -errno */
int prim_watch_add(const PrimWatch *w, void *host, uint64_t len);

/* Restart: the memory counts as not written to again. 0 or -errno */
int prim_watch_restart(const PrimWatch *w, void *host, uint64_t len);

/* @next: the address to begin with; all else is zero before the first call */
typedef struct PrimWatchIter {
    unsigned nr, at;
    uintptr_t next;
    struct {
        uint64_t start, end, categories;
    } ranges[256];
} PrimWatchIter;

/*
 * The next range of whole pages, up to the address @to, that may have been
 * written to.  Returns 1 with the range in @start and @end; 0 if there is none;
 * -errno if the kernel cannot list them, -EPERM if other memory has taken the
 * place of the watched memory.
 */
int prim_watch_next(const PrimWatch *w, PrimWatchIter *it, uintptr_t to,
                    uintptr_t *start, uintptr_t *end);

#endif
