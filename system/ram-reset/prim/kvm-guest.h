/*
 * What page faults cost a guest: a guest to find that out with
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef RAM_RESET_PRIM_KVM_GUEST_H
#define RAM_RESET_PRIM_KVM_GUEST_H

/*
 * A virtual machine of its own, next to any other, whose one vCPU does nothing
 * but write to pages.  Its kernel is none: it starts in 64-bit ring 3, where
 * also those hosts run guests natively that would emulate the rest.
 */
typedef struct PrimGuest PrimGuest;

/*
 * @host: memory of @len bytes, at most 1 GiB, both multiples of the base page
 * size; stays the caller's.  Returns NULL, with errno set, where there is no
 * KVM that we may use; ENOSYS on other hosts than x86_64.  Free with
 * prim_guest_free().
 */
PrimGuest *prim_guest_new(void *host, uint64_t len);
void prim_guest_free(PrimGuest *guest);

/*
 * Have the guest write a 0 to the first byte of @count pieces of memory that
 * are @step bytes apart, from @start on.  0, or -errno; -EIO if the guest did
 * not come to the end of it.
 */
int prim_guest_touch(PrimGuest *guest, uint64_t start, uint64_t step,
                     uint64_t count);

/*
 * Have KVM log what the guest writes to, and thus protect what it has touched:
 * the next write to each page is a fault.  0, or -errno.
 */
int prim_guest_protect(PrimGuest *guest);

#endif
