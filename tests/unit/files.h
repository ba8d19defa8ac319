/*
 * Files that are opened, refused, and used by other processes
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef RAM_RESET_TEST_FILES_H
#define RAM_RESET_TEST_FILES_H

#include "qapi/error.h"

/* Frees *@err, whose text must have @part in it, and sets it to NULL */
void assert_error(Error **err, const char *part);

/* Starts a process that does @act with @path, and lives until it is killed */
pid_t child(void (*act)(const char *path), const char *path);

/* Kills this process */
void end(pid_t pid);

/* False with @errp set, and then @fd is -1 */
typedef bool Open(const char *path, int *fd, Error **errp);

void assert_open_refused(Open *open, const char *path, const char *part);

/* Returns a descriptor; the open must not refuse the file */
int opened(Open *open, const char *path);

/*
 * The open must refuse all but regular files.  @link_dir: a folder for symbolic
 * links, not on hugetlbfs; @fifo: the message about a FIFO
 */
void check_kinds(Open *open, const char *path, const char *link_dir,
                 const char *fifo);

/* The file has @size bytes, is for this user alone, and exec() closes it */
void check_new_file(int fd, off_t size);

/* Limits the size of files of this process */
void limit_files(uint64_t bytes);

typedef void PathTest(const char *path);

/* Calls @test with the path of a file in @in, which it may make */
void run_with_file(const char *in, PathTest *test);

#endif
