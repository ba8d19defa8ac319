/*
 * prim: a small guest that measures the cost of page faults
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef RAM_RESET_PRIM_KVM_GUEST_H
#define RAM_RESET_PRIM_KVM_GUEST_H

/*
 * A virtual machine of its own, independent of any other.  Its one vCPU only
 * writes to pages.  It has no kernel: it starts in 64-bit ring 3, which even a
 * host that emulates other modes runs natively.
 */
typedef struct PrimGuest PrimGuest;

/*
 * @host: memory of @len bytes, at most 1 GiB, both multiples of the base page
 * size; the caller still owns it.  Returns NULL with errno set if KVM cannot be
 * used; ENOSYS if the host is not x86_64.  Free the result with
 * prim_guest_free().
 */
PrimGuest *prim_guest_new(void *host, uint64_t len);
void prim_guest_free(PrimGuest *guest);

/*
 * Let the guest write a 0 to the first byte of @count pieces of memory that are
 * @step bytes apart, from @start on.  0, or -errno; -EIO if the guest did not
 * finish.
 */
int prim_guest_touch(PrimGuest *guest, uint64_t start, uint64_t step,
                     uint64_t count);

/*
 * Let KVM log the guest's writes.  This protects the pages that the guest has
 * touched: the next write to each page is a fault.  0, or -errno.
 */
int prim_guest_protect(PrimGuest *guest);

#endif
