/*
 * RAM reset: base pages for a guest that has just been loaded
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef RAM_RESET_BLOCK_BASE_PAGES_H
#define RAM_RESET_BLOCK_BASE_PAGES_H

#include "system/ram-reset/block/block.h"

/*
 * Let the kernel use base pages for @rb, private anonymous memory that is
 * mostly absent, until the guest is seen to write densely, or has run for some
 * seconds; after that transparent hugepages, as before.  BQL held.
 */
void ram_reset_base_pages(RAMBlock *rb);

/* Memory at @host is being removed, or has been replaced */
void ram_reset_base_pages_end(const uint8_t *host);

#endif
