/*
 * Loading RAM of a migration that comes in from a file
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef MIGRATION_RAM_RESET_INCOMING_H
#define MIGRATION_RAM_RESET_INCOMING_H

#include "migration/qemu-file-types.h"
#include "qapi/qapi-types-ram-reset.h"

/*
 * A file in the form of mapped-ram is mapped as it is.  For a file in the form
 * of a stream QEMU makes a template, if an object has a directory for that.
 * Without a ram-reset object, and for anything that is no regular file, these
 * functions do nothing.  BQL held.
 */

/**
 * ram_reset_incoming_skip: a RAM section of a migration is about to be loaded
 *
 * As ram_reset_load_skip().
 */
bool ram_reset_incoming_skip(QEMUFile *f);

/**
 * ram_reset_incoming_ram_done: a RAM section has been loaded
 *
 * @last: no RAM section follows
 * @ret: the result of its load, 0 or -errno
 *
 * After the last one makes a template and a baseline.  If verify=on has found
 * that RAM differs, sets the error of the migration's QEMUFile.
 */
void ram_reset_incoming_ram_done(bool last, int ret);

/**
 * ram_reset_query_incoming: how RAM has come in; NULL if it has not
 */
RamResetIncomingInfo *ram_reset_query_incoming(void);

#endif
