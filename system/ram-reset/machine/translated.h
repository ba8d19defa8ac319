/*
 * RAM reset: translated code of TCG in a rewind
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef RAM_RESET_MACHINE_TRANSLATED_H
#define RAM_RESET_MACHINE_TRANSLATED_H

#include "exec/cpu-common.h"

/*
 * A write to a page drops the code that was translated from it.  The writes of
 * a load do not, so a load drops all code.  A rewind writes to few pages: it
 * drops their code, and the rest stays valid.
 *
 * All functions: BQL held, vCPUs stopped.  They do nothing without TCG.
 */

/*
 * A rewind begins: defer flushes until ram_reset_code_finish().  Drops all code
 * now unless it certainly matches RAM.
 */
void translated_defer_flush(void);

/*
 * Drop the code of the pages of @rb in @pages, which has a bit for each target
 * page; NULL for all.  Does nothing unless flushes are deferred.
 */
void translated_drop(RAMBlock *rb, const unsigned long *pages);

/* The dirty log restarts: it lacks all writes before now */
void translated_restart(void);

#endif
