/*
 * The content of a RAM block that a snapshot has, and going back to it
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef RAM_RESET_TEMPLATE_H
#define RAM_RESET_TEMPLATE_H

#include <glib.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "templatefile.h"

/*
 * A template has a copy of those pages of a block that are not zero, in
 * memory with the block's layout, or in a file.  All other pages are zero in
 * it, and take none.
 *
 * Bitmaps have a bit for each page of the block, bit 0 of word 0 for the
 * first, and words of unsigned long; those given by the caller end with the
 * word of the last page, and have no bits beyond it.
 *
 * No locking, other than what template_restore() says.
 */
typedef struct RamTemplate RamTemplate;

/*
 * @len: bytes, a multiple of @page_size.  NULL with errno set if memory cannot
 * be had.
 */
RamTemplate *template_new(uint64_t len, size_t page_size);

/*
 * What block @nr of @f has, which may be closed afterwards.  Nothing can be
 * added to it.  NULL with errno set if it cannot be mapped.
 */
RamTemplate *template_of_file(const TemplateFile *f, unsigned nr);

void template_free(RamTemplate *t);

/*
 * Copy what of [@start, @end) at @host, the start of the block, is not zero.
 * Both are multiples of the page size.  Pages that were kept before and are
 * zero now must not be in the range.
 */
void template_keep(RamTemplate *t, const uint8_t *host,
                   uint64_t start, uint64_t end);

/*
 * Append to @runs, of TemplateRun, those pages of [@start, @end) at @host that
 * are not zero.
 */
void template_find_runs(const uint8_t *host, uint64_t start, uint64_t end,
                        size_t page_size, GArray *runs);

/* How many bytes are kept */
uint64_t template_size(const RamTemplate *t);

/* What is kept, with the block's layout; only that may be read */
const uint8_t *template_copy(const RamTemplate *t);

/* Words in a bitmap */
size_t template_words(const RamTemplate *t);

/*
 * Pages that were dirty in two calls of template_restore() running: to protect
 * them against writing once more costs the guest more than copying them costs
 * us.  They leave this bitmap when a sample finds them unchanged.
 */
const unsigned long *template_hot(const RamTemplate *t);

/*
 * Pages.  @cold: of the dirty ones that were not hot, so that the guest has
 * paid a fault for each; @stale: those that are hot no longer
 */
typedef struct TemplateCounts {
    uint64_t dirty, copied, cleared, cold, stale;
} TemplateCounts;

/*
 * Make the pages at @host whose bits are set in @dirty what they are in the
 * template, but only those of words [@first, @last) of the bitmap: several
 * threads may do that for words of their own, each with its own @counts,
 * which are added to.
 *
 * @turn: rises from load to load, and says which of the hot pages are sampled.
 * @leave_zeros: pages that are zero in the template are only counted, as
 *     cleared; see template_zeros().
 */
void template_restore(RamTemplate *t, uint8_t *host,
                      const unsigned long *dirty, size_t first, size_t last,
                      unsigned turn, bool leave_zeros, TemplateCounts *counts);

/*
 * Take pages off @dirty that are zero in the template and not set in @present:
 * those read zero anyway.
 */
void template_spare(const RamTemplate *t, unsigned long *dirty,
                    const unsigned long *present);

/*
 * The next run of pages that are dirty, and zero in the template, from byte
 * @from on; false if there is none.
 */
bool template_zeros(const RamTemplate *t, const unsigned long *dirty,
                    uint64_t from, uint64_t *start, uint64_t *end);

/*
 * The same for pages of which it is not known whether they are dirty: those
 * that are kept, and those whose bits are set in @present; all others must
 * read zero.  @present: NULL for all pages.  What differs is counted as dirty.
 */
void template_compare(const RamTemplate *t, uint8_t *host,
                      const unsigned long *present, size_t first, size_t last,
                      TemplateCounts *counts);

#endif
