/*
 * Templates: limit the size of their directory
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef RAM_RESET_TEMPLATE_DIR_H
#define RAM_RESET_TEMPLATE_DIR_H

#include "qapi/error.h"

/*
 * @dir is the descriptor of an open directory that trusted_dir_refusal()
 * accepts.  The caller does all locking between
 * threads.
 */

/* Remove the file for @identity, even if it is in use */
void template_dir_remove(int dir, const char *identity);

/*
 * Remove the file for @identity, unless another process uses it.  @own: our
 * descriptor, by which we may have it locked, or -1.  False if the file is
 * still there, or never was.
 */
bool template_dir_retire(int dir, const char *identity, int own);

/* The size of all template files in @dir in bytes */
uint64_t template_dir_size(int dir);

/*
 * Remove files from @dir until there is room for @needed bytes more.  @limit:
 * the limit for all files, 0: half of the file system.  @own: names of the
 * files that may be removed; or NULL for all files except those used since
 * @since, in seconds since 1970.  The least recently used file is removed
 * first; files in use stay.  Files that others have left half-written are
 * removed in any case.
 */
bool template_dir_make_room(int dir, uint64_t limit, uint64_t needed,
                            GHashTable *own, int64_t since, Error **errp);

#endif
