/*
 * RAM reset: pages of the baseline that are in the snapshot's image only
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef RAM_RESET_REWIND_UNREAD_H
#define RAM_RESET_REWIND_UNREAD_H

#include "system/ram-reset/rewind/baseline.h"

/*
 * A new baseline has the content of no page that its store has.  A page is read
 * when it is needed first, and kept.  All functions: BQL held.
 */

/* The store of all unread pages, which is taken over; NULL: there are none */
void unread_set_store(RamResetPageStore *store);
RamResetPageStore *unread_store(void);

/* Bytes of the unread pages of @baseline, an array of BaselineBlock or NULL */
uint64_t unread_size(const GArray *baseline);

/*
 * Read the unread pages in the bitmap @among, NULL for all, without those in
 * @except, NULL for none.  Returns false with @errp set if one cannot be read.
 */
bool unread_read(BaselineBlock *base, const unsigned long *among,
                 const unsigned long *except, Error **errp);

/* Read all unread pages of @baseline, then free the store; false as above */
bool unread_read_all(GArray *baseline, Error **errp);

#endif
