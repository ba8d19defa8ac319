/*
 * A VM state with RAM, made of one without RAM and a point
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef MIGRATION_RAM_RESET_VMSTATE_COMPOSE_H
#define MIGRATION_RAM_RESET_VMSTATE_COMPOSE_H

#include <glib.h>
#include "migration/ram-reset/vmstate/page-places.h"

/* All functions need the BQL */
typedef struct VMStateComposer VMStateComposer;

/**
 * vmstate_compose_new: begin at the first byte
 *
 * @vmstate: a VM state that savevm has written without pages of RAM; referenced
 * @ram_end: the position in it of the footer of the last RAM section, in bytes
 * @point: a pinned point, with the pages
 *
 * Returns: a composer for vmstate_compose_free(); NULL with @errp set if
 *     @vmstate has no RAM section before @ram_end
 */
VMStateComposer *vmstate_compose_new(GBytes *vmstate, uint64_t ram_end,
                                     uint64_t point, Error **errp);
void vmstate_compose_free(VMStateComposer *c);

/**
 * vmstate_compose_next: append the next bytes to @to
 *
 * Each record of a page is appended whole.
 *
 * @to: gets at least @room bytes in all, or all that are left
 *
 * Returns: false with @errp set if the point is not there, or a page of it
 *     cannot be read
 */
bool vmstate_compose_next(VMStateComposer *c, GByteArray *to, size_t room,
                          Error **errp);

/**
 * vmstate_compose_behind: begin behind @start bytes that another VM state has,
 * which are in RAM's last section and whose next record would be its end
 *
 * Call this before vmstate_compose_next().
 *
 * @pages: for each block a bitmap of the pages that are to be composed, @nr in
 *     all; lives as long as @c
 * @places: of the pages in front of @start, of which @c makes a copy
 */
void vmstate_compose_behind(VMStateComposer *c, int64_t start,
                            unsigned long *const *pages, uint64_t nr,
                            const PagePlaces *places);

/* Bytes that are still to come, if no further page is zero */
uint64_t vmstate_compose_left(const VMStateComposer *c);

/* The footer of the last RAM section in what has been composed; 0 before it */
int64_t vmstate_compose_ram_end(const VMStateComposer *c);

/*
 * The places of all pages, when all bytes have been composed; owned by the
 * caller.  NULL the second time.
 */
PagePlaces *vmstate_compose_places(VMStateComposer *c);

#endif
