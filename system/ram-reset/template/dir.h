/*
 * RAM reset: the directory of template files
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef RAM_RESET_TEMPLATE_DIR_H
#define RAM_RESET_TEMPLATE_DIR_H

/*
 * @dir is the descriptor of an open directory that trusted_dir_refusal() has
 * nothing against.  Reasons are sentences, to be freed.  No locking between
 * threads.
 */

/* Remove the file for @identity, whoever uses it */
void template_dir_remove(int dir, const char *identity);

/*
 * Remove the file for @identity, unless somebody else uses it.  @own: a
 * descriptor by which we may have it locked, or -1.  False if it is still
 * there, or has not been.
 */
bool template_dir_retire(int dir, const char *identity, int own);

/* Bytes that all template files in @dir take */
uint64_t template_dir_size(int dir);

/*
 * Remove files from @dir until there is room for @needed bytes more.  @limit:
 * what all may have, 0: half of the file system.  @own: names of the
 * files that may go; or NULL for all but those used since @since, in seconds
 * since 1970.  Of those that may go the one used longest
 * ago is the first; those that are in use stay.
 * What others have left half-written goes in any case.
 */
bool template_dir_make_room(int dir, uint64_t limit, uint64_t needed,
                            GHashTable *own, int64_t since, char **reason);

#endif
