/*
 * RAM reset: the reasons why a load is not a rewind, and their remedies
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef RAM_RESET_REWIND_BLOCKERS_H
#define RAM_RESET_REWIND_BLOCKERS_H

#include "qapi/qapi-types-ram-reset.h"

/* The blocker @id without a detail, never freed */
const RamResetBlocker *ram_reset_blocker(RamResetBlockerId id);

/* The blocker @id with a @detail, which may be NULL, owned by the caller */
RamResetBlocker *ram_reset_blocker_new(RamResetBlockerId id,
                                       const char *detail);

/* A copy of @b, owned by the caller; NULL if @b is NULL */
RamResetBlocker *ram_reset_blocker_copy(const RamResetBlocker *b);

/* The sentence of @b and its detail, owned by the caller; NULL if @b is NULL */
char *ram_reset_blocker_text(const RamResetBlocker *b);

#endif
