/*
 * The names that template files have in their directory, and their locks
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef RAM_RESET_TEMPLATE_NAME_H
#define RAM_RESET_TEMPLATE_NAME_H

/* The name of the file for @identity, to be freed */
char *template_file_name(const char *identity);

/* The name that it has while it is written, to be freed */
char *template_file_unfinished_name(const char *identity);

/* Whether a file called @name may be a template, finished or not */
bool template_file_is_name(const char *name);
bool template_file_is_unfinished_name(const char *name);

/* Whether @name is the name of @fd, and not of another file by now */
bool template_file_is_called(int dir, const char *name, int fd);

/* Shared.  Who makes or removes a file has it locked for a moment only */
bool template_file_lock(int fd);

#endif
