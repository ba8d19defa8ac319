/*
 * The file on hugetlbfs that guest RAM is kept in from run to run
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef RAM_RESET_HUGEFILE_FILE_H
#define RAM_RESET_HUGEFILE_FILE_H

/*
 * Functions that can fail return a sentence that says why, to be freed, or
 * NULL if all is well.
 */

/*
 * Open the file at @path, for reading, and take its lock.  @fd is -1 if there
 * is none.
 * Refused: what is no regular file on hugetlbfs, a link, somebody else's file,
 * and one that another process has open, or may have.
 */
char *hugefile_file_open(const char *path, int *fd);

/* Make a file of @size bytes at @path, where there is none, and lock it. */
char *hugefile_file_create(const char *path, uint64_t size, int *fd);

/*
 * Have the kernel set hugepages aside for all of the file, so that it will
 * not run out of them later.
 */
char *hugefile_file_reserve(int fd, uint64_t size, uint64_t page_size);

/*
 * Take the lock by way of another descriptor than the one that has it, which
 * is closed.  @path is as it was for hugefile_file_open().  Refused: another
 * file, and one that another process has opened meanwhile.
 */
char *hugefile_file_take_over(int from, int to, const char *path);

/*
 * From now on take note of who closes the file after having opened it for
 * writing, as it must be to be mapped for that: whoever has opened it since
 * and has not closed it is found by trusted_file_is_ours_alone().  Returns a
 * descriptor for hugefile_file_was_closed(), which closes it; -1 if the kernel
 * does not take note of that.
 */
int hugefile_file_notice(int fd);
bool hugefile_file_was_closed(int notice);

/*
 * Set an access time that nobody would set, into @time; the kernel replaces
 * it as soon as somebody maps the file, other than with O_NOATIME.  False if
 * it would not, or if somebody else has the file open already.
 */
bool hugefile_file_watch(int fd, int64_t *time);

int64_t hugefile_file_access_time(const struct stat *st);

#endif
