/*
 * The file on hugetlbfs that holds guest RAM and outlives QEMU
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef RAM_RESET_HUGEFILE_FILE_H
#define RAM_RESET_HUGEFILE_FILE_H

#include "qapi/error.h"

/*
 * A function that can fail returns false, with @errp set to a sentence.
 */

/*
 * Open the file at @path for reading, and lock it.  @fd is -1 if there is
 * none.  Refuses a file that is not a regular one on hugetlbfs, a symbolic
 * link, another user's file, and a file that another process has open, or may
 * have.
 */
bool hugefile_file_open(const char *path, int *fd, Error **errp);

/* Make and lock a file of @size bytes at @path, where there is none. */
bool hugefile_file_create(const char *path, uint64_t size, int *fd,
                          Error **errp);

/*
 * Reserve hugepages for all of the file, so that the kernel cannot run out of
 * them later.
 */
bool hugefile_file_reserve(int fd, uint64_t size, uint64_t page_size,
                           Error **errp);

/*
 * Move the lock from descriptor @from, which is closed, to @to.  @path is the
 * same as for hugefile_file_open().  Refuses another file, and a file that
 * another process has opened meanwhile.
 */
bool hugefile_file_move_lock(int from, int to, const char *path, Error **errp);

/*
 * Watch from now on whether a process closes the file that had opened it for
 * writing, as mapping it needs.  A process that opens the file and still has it
 * open is found by trusted_file_is_ours_alone().  Returns a descriptor for
 * hugefile_file_was_closed(), which closes it; -1 if the kernel cannot watch
 * the file.
 */
int hugefile_file_notice(int fd);
bool hugefile_file_was_closed(int notice);

/*
 * Set an unusual access time and store it in @time; the kernel replaces it as
 * soon as a process maps the file, except with O_NOATIME.  False if the kernel
 * would not, or if another process has the file open already.
 */
bool hugefile_file_watch(int fd, int64_t *time);

int64_t hugefile_file_access_time(const struct stat *st);

#endif
