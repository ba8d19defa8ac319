/*
 * ram-reset-hugefile: find and clear hugepages that hold bytes
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef RAM_RESET_HUGEFILE_PAGES_H
#define RAM_RESET_HUGEFILE_PAGES_H

#include "system/ram-reset/block/block.h"
#include "system/ram-reset/hugefile/hugefile.h"

/* All functions need @hf->rb, that is, mapped RAM */

/*
 * Find out which pages of @hf->old, or of the whole file if @all, are in the
 * file: other pages are zero.  Call this before anybody reads RAM.
 */
void hugefile_find_old(RamResetHugefile *hf, bool all);

/*
 * Clear these pages before the guest runs, if no load has.  @hf->old is not
 * NULL.
 */
void hugefile_clear_old(RamResetHugefile *hf);

/*
 * Whether our page table has all pages that were written to: nobody else maps
 * the file, no device accesses it in another way, and mincore() is exact, as it
 * is for the owner of the file.
 */
bool hugefile_nobody_else_maps(RamResetHugefile *hf);

/* Make bytes of @blk zero in a load, or note that they are expected to be */
void hugefile_zero_pages(RamResetHugefile *hf, RamResetBlock *blk,
                         uint64_t start, uint64_t len);

/*
 * QEMU exits, and nobody else maps the file: clear the pages that this run has
 * used, or list them in @hf->record.
 */
void hugefile_clean_up(RamResetHugefile *hf);

#endif
