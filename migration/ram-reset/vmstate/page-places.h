/*
 * The places of pages in a VM state
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef MIGRATION_RAM_RESET_VMSTATE_PAGE_PLACES_H
#define MIGRATION_RAM_RESET_VMSTATE_PAGE_PLACES_H

#include "exec/cpu-common.h"

/*
 * savevm and loadvm pass each page of RAM once, block by block, in order.  The
 * places of pages that are not zero are noted while they do.  If anything does
 * not fit, the places are lost, and there are no runs.  Positions are in bytes
 * from the start of the VM state, numbers of pages in target pages.  All
 * functions need the BQL.
 *
 * A snapshot that was stored from memory may have second records behind all
 * others, of pages whose first record is of a zero page.
 */
typedef struct PagePlaces PagePlaces;

/**
 * PageRun: records of pages that follow each other in RAM and in the VM state
 *
 * @page: the number of the first page in its block
 * @nr: the number of pages
 * @at: the position of the content of the first page; between the contents of
 *     two pages lies the head of a record, of RAM_RECORD bytes
 * @named: the head of the first record may have the name of the block
 */
typedef struct PageRun {
    uint64_t page, nr;
    int64_t at;
    bool named;
} PageRun;

PagePlaces *page_places_new(void);
void page_places_free(PagePlaces *p);

/**
 * page_places_copy: a copy of all places, to which second records are added;
 * owned by the caller
 */
PagePlaces *page_places_copy(const PagePlaces *p);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(PagePlaces, page_places_free)

/**
 * page_places_begin_section: the next record is at @at; -1 if that is unknown
 */
void page_places_begin_section(PagePlaces *p, int64_t at);

/**
 * page_places_record: the next record is for the page at @offset of the block of
 * this name, and has these RAM_SAVE_FLAG_*
 */
void page_places_record(PagePlaces *p, const char *name, ram_addr_t offset,
                        int flags);

/**
 * page_places_zeros: the next @nr records are of zero pages
 */
void page_places_zeros(PagePlaces *p, uint64_t nr);

/**
 * page_places_end_section: the footer of the section is at @at; -1 if that is
 * unknown
 */
void page_places_end_section(PagePlaces *p, int64_t at);

/**
 * page_places_set_footer: the footer of the last section is at @at; unknown if
 * that is not positive
 */
void page_places_set_footer(PagePlaces *p, int64_t at);

/**
 * page_places_put: the content of the page at @offset of the block of this name
 * is at @at
 */
void page_places_put(PagePlaces *p, const char *name, ram_addr_t offset,
                     int64_t at);

/**
 * page_places_runs: the runs of the block of this name, in order
 *
 * Returns: an array of PageRun, owned by @p; NULL if the places are lost, or no
 *     page of the block was noted
 */
const GArray *page_places_runs(const PagePlaces *p, const char *name);

/**
 * page_places_are_lost: whether anything did not fit
 */
bool page_places_are_lost(const PagePlaces *p);

/**
 * page_places_has_head: whether the head of a full record of @page lies in front
 * of @content
 *
 * @room: the number of bytes in front of @content.  A head that lies there only
 *     in part is not looked at
 * @name: that of the block, which the head may have; NULL: it may not
 */
bool page_places_has_head(const uint8_t *content, size_t room, uint64_t page,
                          const char *name);

/**
 * page_places_have_all: whether each of @pages pages was noted, or counted as
 * zero, so that the runs have all that are not zero
 *
 * Call this when all have been noted, before the runs are used.
 */
bool page_places_have_all(PagePlaces *p, uint64_t pages);

/**
 * page_places_end: the position behind the footer of the last section; behind
 * the last page of all blocks if that is not known
 */
int64_t page_places_end(const PagePlaces *p);

#endif
