/*
 * Who may have written to a file or directory
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef RAM_RESET_PRIM_TRUSTED_FILE_H
#define RAM_RESET_PRIM_TRUSTED_FILE_H

/*
 * A guest's RAM comes from files, and what is zero in it: whoever can write to
 * one of them, or put another one in its place, has the guest.  So a file is
 * trusted if
 *
 * - it is a regular file,
 * - that belongs to the user that QEMU runs as,
 * - with a mode that lets nobody else read it or write to it,
 * - and without other names, by which it could be somewhere else, too;
 * - and if it has been opened as what it is, not by way of a symbolic link,
 *   see trusted_file_open().
 *
 * Nothing is trusted that is not known.  A caller that needs less of that says
 * so, each rule by its name:
 */
typedef enum TrustedFileRule {
    /* A directory, not a regular file, with any number of names */
    TRUST_DIRECTORY = 1 << 0,
    /* Root may own it, too: who is root needs no file to have the guest */
    TRUST_ROOT = 1 << 1,
    /* Others may read it, but not write to it */
    TRUST_READERS = 1 << 2,
    /* Directories only: others may add to it, if sticky as /tmp is */
    TRUST_STICKY = 1 << 3,
    /* Any mode: the caller finds out otherwise who has it open, and sets one */
    TRUST_ANY_MODE = 1 << 4,
    /* Other names, to a file that is only read */
    TRUST_LINKS = 1 << 5,
} TrustedFileRule;

/*
 * Why a file like @st, of fstat(), is not to be trusted by @rules, a set of
 * TrustedFileRule: a sentence, to be freed; NULL if it is.
 */
char *trusted_file_refusal(const struct stat *st, unsigned rules);

/* The same for an open file */
char *trusted_file_fd_refusal(int fd, unsigned rules);

/*
 * Why files in @dir, an open directory for them, could not be trusted whoever
 * they belong to: others might replace them.  To be freed, or NULL.
 */
char *trusted_dir_refusal(int dir);

/* Whether a file like @st is of the user that QEMU runs as */
bool trusted_file_is_ours(const struct stat *st);

/*
 * openat() of what has not been looked at yet: follows no link, waits for
 * nobody, makes a file (O_CREAT in @flags) for this user alone.
 */
int trusted_file_open(int dir, const char *path, int flags);

/* What @err means after that: as g_strerror(), and as long valid */
const char *trusted_file_open_error(int err);

/*
 * Whether nobody else has the file open, other than by a copy of @fd; errno is
 * EAGAIN if somebody has.  If nobody has, and @hold, others have to wait for @fd to be
 * closed, or for the kernel's patience to end (45 s).
 */
bool trusted_file_is_ours_alone(int fd, bool hold);

#endif
