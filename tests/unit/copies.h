/*
 * A RAM block with a copy of it, in memory or in a file, to be restored
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef RAM_RESET_TEST_COPIES_H
#define RAM_RESET_TEST_COPIES_H

#include "system/ram-reset/template/file.h"

#define PAGE  4096
#define BITS  (8 * sizeof(unsigned long))
/* The last word of a bitmap is in part of use */
#define PAGES (5 * BITS + 7)
#define LEN   (PAGES * PAGE)

typedef struct CopyFixture {
    RamCopy *t;
    uint8_t *host;
    uint8_t *was;               /* what is kept */
    unsigned long *dirty;
    unsigned turn;
} CopyFixture;

/* Every third page holds something, some of them only one byte */
void copy_setup(CopyFixture *f, gconstpointer by_file);
void copy_teardown(CopyFixture *f, gconstpointer data);

/* In two parts, whose border is anywhere */
RamCopyCounts copy_restore(CopyFixture *f, bool leave_zeros);

/* A change to @page, which is dirty then */
void copy_write(CopyFixture *f, size_t page);
void copy_scribble(uint8_t *page);
void copy_clean(CopyFixture *f);

/* A bit of a bitmap such as CopyFixture.dirty */
bool bit_is_set(const unsigned long *bits, size_t page);
void bit_set(unsigned long *bits, size_t page);

#endif
