/*
 * The context in which snapshot jobs run
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef MIGRATION_RAM_RESET_JOB_CONTEXT_H
#define MIGRATION_RAM_RESET_JOB_CONTEXT_H

#include "qemu/coroutine.h"

typedef void RamResetJobFunction(void *opaque);

/*
 * Call @function in a bottom half of ram_reset_job_context(), and wait for its
 * end.  The coroutine is one of the main thread.
 */
void coroutine_fn ram_reset_job_call(RamResetJobFunction *function,
                                     void *opaque);

#endif
