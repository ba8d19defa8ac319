/*
 * RAM reset: the code that TCG has translated, when RAM is rewound
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef RAM_RESET_MACHINE_TRANSLATED_H
#define RAM_RESET_MACHINE_TRANSLATED_H

#include "exec/cpu-common.h"

/*
 * What is translated of a page is dropped when somebody writes to the page, and
 * a load drops all of it: it writes past that.  A rewind writes to few pages,
 * so it drops what is translated of those, and keeps the rest.
 *
 * All functions: BQL held, vCPUs stopped.  They do nothing without TCG.
 */

/*
 * A rewind begins: until ram_reset_code_release(), ram_reset_keeps_code().
 * Drops all now if that is not certain to be of what RAM has.
 */
void translated_hold(void);

/* While held: drop what is of @pages, one bit for each, of @rb; NULL for all */
void translated_drop(RAMBlock *rb, const unsigned long *pages);

/* What was written before now is not in the dirty log */
void translated_begin_anew(void);

#endif
