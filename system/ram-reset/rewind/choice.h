/*
 * RAM reset: whether the next rewind uses the dirty log or compares all of RAM
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef RAM_RESET_REWIND_CHOICE_H
#define RAM_RESET_REWIND_CHOICE_H

#include "system/ram-reset/block-list.h"

/*
 * Tracking costs the guest a fault for each page, which the guest pays between
 * loads; comparing costs the load.  policy.h decides by the times that both
 * have taken.  All functions: BQL held.
 */

/* Whether the next rewind compares */
bool choice_compares(void);

/* Forget the choice, not the times that were measured */
void choice_reset(void);

/*
 * Choose for the next rewind.  The last one has chosen as choice_compares()
 * says, and taken @ns for the blocks of @list; tracking has cost the guest a
 * fault for @faults pages, or would have.
 */
void choice_note(const RamResetBlockList *list, uint64_t faults, int64_t ns);

#endif
