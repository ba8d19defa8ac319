/*
 * The job that stores a snapshot, which is in memory only, in its image
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef MIGRATION_RAM_RESET_STORE_H
#define MIGRATION_RAM_RESET_STORE_H

#include "block/aio.h"

/**
 * ram_reset_store: start the job of that command
 *
 * @speed: in bytes per second; 0 for no limit
 * @flags: of job_create()
 * @cb: called when the job ends, if not NULL, and not before this returns
 *
 * Returns: false with @errp set if there is no job
 */
bool ram_reset_store(const char *job_id, const char *tag, uint64_t speed,
                     int flags, BlockCompletionFunc *cb, void *opaque,
                     Error **errp);

#endif
