/*
 * Templates: names and locks of their files
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef RAM_RESET_TEMPLATE_NAME_H
#define RAM_RESET_TEMPLATE_NAME_H

/* The name of the file for @identity, to be freed */
char *template_file_name(const char *identity);

/* The name of the file while it is written, to be freed */
char *template_file_unfinished_name(const char *identity);

/* Whether a file called @name may be a template, finished or not */
bool template_file_is_name(const char *name);
bool template_file_is_unfinished_name(const char *name);

/* Whether @name is still the name of @fd, and not of another file */
bool template_file_is_called(int dir, const char *name, int fd);

/*
 * Take the shared lock.  A process that makes or removes a file locks it only
 * for a moment.
 */
bool template_file_lock(int fd);

#endif
