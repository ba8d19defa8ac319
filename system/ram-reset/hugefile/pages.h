/*
 * ram-reset-hugefile: which hugepages hold bytes, and clearing them
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef RAM_RESET_HUGEFILE_PAGES_H
#define RAM_RESET_HUGEFILE_PAGES_H

#include "system/ram-reset/block/block.h"
#include "system/ram-reset/hugefile/hugefile.h"

/* All functions: RAM is mapped, @hf->rb */

/*
 * Find out which of the pages that @hf->old has, or @all, are in the file: the
 * others are zero.  To be called before anybody looks at RAM.
 */
void hugefile_find_old(RamResetHugefile *hf, bool all);

/* Clear them before the guest runs, as no load has.  @hf->old is not NULL. */
void hugefile_clear_old(RamResetHugefile *hf);

/*
 * Whether our page table has all that is written to the file: nobody else
 * maps it, no device gets at it by other ways, and mincore() tells the truth,
 * which it does to the owner of the file.
 */
bool hugefile_nobody_else_maps(RamResetHugefile *hf);

/* Make bytes of @blk zero in a load, or note that they are expected to be */
void hugefile_zero_pages(RamResetHugefile *hf, RamResetBlock *blk,
                         uint64_t start, uint64_t len);

/*
 * QEMU is at its end, and nobody else maps the file: clear what this run has
 * used, or put it down in @hf->record.
 */
void hugefile_clean_up(RamResetHugefile *hf);

#endif
