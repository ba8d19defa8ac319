/*
 * A RAM block and its copy, in memory or in a file, for tests of restoring
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef RAM_RESET_TEST_COPIES_H
#define RAM_RESET_TEST_COPIES_H

#include "system/ram-reset/template/file.h"

#define PAGE  4096
#define BITS  (8 * sizeof(unsigned long))
/* Only a part of the last word of a bitmap is used */
#define PAGES (5 * BITS + 7)
#define LEN   (PAGES * PAGE)

typedef struct CopyFixture {
    RamCopy *t;
    uint8_t *host;
    uint8_t *was;               /* RAM when it was copied */
    unsigned long *dirty;
    unsigned turn;
} CopyFixture;

/* Each third page has data, some of these only one byte */
void copy_setup(CopyFixture *f, gconstpointer by_file);
void copy_teardown(CopyFixture *f, gconstpointer data);

/* Copies in two parts with any border */
RamCopyCounts copy_restore(CopyFixture *f, bool leave_zeros);

/* Changes @page, which becomes dirty */
void copy_write(CopyFixture *f, size_t page);
void copy_scribble(uint8_t *page);
void copy_clean(CopyFixture *f);

/* A bit of a bitmap such as CopyFixture.dirty */
bool bit_is_set(const unsigned long *bits, size_t page);
void bit_set(unsigned long *bits, size_t page);

#endif
