/*
 * A VM state made of that of another snapshot
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef MIGRATION_RAM_RESET_VMSTATE_PATCHES_H
#define MIGRATION_RAM_RESET_VMSTATE_PATCHES_H

#include <glib.h>
#include "migration/ram-reset/vmstate/page-places.h"

/*
 * The other VM state is taken up to the end of RAM.  A page that differs and has
 * a full record there gets its content in place: a patch.  A page without one
 * was zero, and is missing.  All functions need the BQL.
 */
typedef struct VMStatePatches VMStatePatches;

/**
 * vmstate_patches_new: find what differs
 *
 * @point: a pinned point, with the RAM of the new VM state
 * @other: a point with the RAM of the other VM state; not needed afterwards
 * @places: of all pages in the other VM state; not needed afterwards
 *
 * Returns: NULL if a place is unknown
 */
VMStatePatches *vmstate_patches_new(uint64_t point, uint64_t other,
                                    const PagePlaces *places);
void vmstate_patches_free(VMStatePatches *p);

/**
 * vmstate_patches_mark: set the bits of the parts that have patches; a part has
 * 1 << @bits bytes
 */
void vmstate_patches_mark(const VMStatePatches *p, unsigned bits,
                          unsigned long *parts);

/**
 * vmstate_patches_apply: apply all patches in @len bytes of the other VM state
 *
 * @start: the position of the first one
 *
 * Returns: false with @errp set if these bytes are not what they should be
 */
bool vmstate_patches_apply(const VMStatePatches *p, int64_t start, uint8_t *buf,
                           size_t len, Error **errp);

/**
 * vmstate_patches_missing: for each block a bitmap of the pages that are missing
 *
 * @nr: set to their number
 */
unsigned long *const *vmstate_patches_missing(const VMStatePatches *p,
                                              uint64_t *nr);

/**
 * vmstate_pages_start: the position of the first page, if there were one, in a
 * VM state that savevm has written without pages
 *
 * @ram_end: the position in it of the footer of the last RAM section, in bytes
 *
 * Returns: -1 if something else than RAM lies in front of @ram_end
 */
int64_t vmstate_pages_start(const uint8_t *bytes, int64_t ram_end);

#endif
