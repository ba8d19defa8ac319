/*
 * Keep private mappings of a file when the file changes
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef RAM_RESET_BLOCK_FILE_LEASE_H
#define RAM_RESET_BLOCK_FILE_LEASE_H

/*
 * A page of a private mapping shows the file until it is written to, and is
 * lost when the file is truncated.  So a process that changes the file changes
 * the memory of all that map it.
 *
 * A read lease tells us in time.  A process that opens the file for writing, or
 * truncates it, waits in the kernel until we give the lease back, for up to
 * /proc/sys/fs/lease-break-time seconds (45 by default).  All functions need
 * the BQL.
 */

/*
 * Called in a turn of the main loop of its own, or by file_lease_give_back().
 * The lease is given back afterwards.
 */
typedef void FileLeaseBroken(int fd);

/*
 * Take a lease on a file, and hold it until it is broken.  Map the file only
 * after that.
 *
 * @fd: opened for reading only; belongs to the lease if this succeeds
 *
 * Returns: 0; -EAGAIN if a process has the file open for writing; -EACCES if
 *     the file belongs to another user; -ENOTSUP if its file system is not known
 *     to be of this host alone; or another -errno
 */
int file_lease_take(int fd, FileLeaseBroken *broken);

/*
 * Give back all leases on the file @fd, which may be open with O_PATH, before
 * this process opens it for writing: it would wait for itself
 */
void file_lease_give_back(int fd);

/* Size of all private mappings of @fd, in bytes, or -errno */
int64_t file_lease_mapped(int fd);

/*
 * Replace all private mappings of @fd by memory with the same content.  Nobody
 * may write to them meanwhile.
 *
 * Returns: 0; -ESTALE if the kernel has not waited any longer, and the file may
 *     have changed; or another -errno.  After a failure the memory may have
 *     any content.
 */
int file_lease_copy(int fd);

#endif
