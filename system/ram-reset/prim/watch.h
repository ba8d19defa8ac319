/*
 * What RAM reset needs of Linux: which pages have been written to
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef RAM_RESET_PRIM_WATCH_H
#define RAM_RESET_PRIM_WATCH_H

/*
 * The kernel tells, from Linux 6.7 on, and to any user: with a userfaultfd that
 * write-protects asynchronously, the first write to a page clears a bit of its
 * page table entry, whoever writes through our address space: a thread, a
 * system call, KVM for a guest.  Nobody waits for us.  What is not seen are
 * writes by way of another mapping of the same memory, so it is for private
 * ones; what a device or the kernel has pinned before; and that a page is
 * discarded.
 *
 * Memory belongs to one userfaultfd at most: others get EBUSY.
 */
typedef struct PrimWatch {
    int uffd, pagemap;
} PrimWatch;

/* 0, or -errno if there is no such thing, and then nothing is to be closed */
int prim_watch_open(PrimWatch *w);

/* All that was watched is so no more */
void prim_watch_close(PrimWatch *w);

/* Watch memory: none of it has been written to so far.  0 or -errno */
int prim_watch_add(const PrimWatch *w, void *host, uint64_t len);

/* That of it has not been written to any more.  0 or -errno */
int prim_watch_anew(const PrimWatch *w, void *host, uint64_t len);

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
 * written to: 1, with it in @start and @end; 0 if there is none; -errno if that
 * cannot be said, -EPERM if other memory has taken the place of what was
 * watched.
 */
int prim_watch_next(const PrimWatch *w, PrimWatchIter *it, uintptr_t to,
                    uintptr_t *start, uintptr_t *end);

#endif
