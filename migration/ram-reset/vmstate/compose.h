/*
 * A VM state with RAM, made of one without RAM and a point
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef MIGRATION_RAM_RESET_VMSTATE_COMPOSE_H
#define MIGRATION_RAM_RESET_VMSTATE_COMPOSE_H

#include <glib.h>

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

/* Bytes that are still to come, if no further page is zero */
uint64_t vmstate_compose_left(const VMStateComposer *c);

/* The footer of the last RAM section in what has been composed; 0 before it */
int64_t vmstate_compose_ram_end(const VMStateComposer *c);

#endif
