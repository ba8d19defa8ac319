/*
 * prim: check which users may have written to a file or directory
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef RAM_RESET_PRIM_TRUSTED_FILE_H
#define RAM_RESET_PRIM_TRUSTED_FILE_H

/*
 * A guest's RAM, and the record of its zero pages, come from files: a user who
 * can write to such a file, or replace it, controls the guest.  A file is
 * therefore trusted if
 *
 * - it is a regular file,
 * - it belongs to the user that QEMU runs as,
 * - its mode lets no other user read it or write to it,
 * - it has no other name, which could be in an unsafe directory,
 * - and it was opened by trusted_file_open(), not through a symbolic link.
 *
 * If a property cannot be found out, the file is not trusted.  A caller that
 * needs less relaxes rules by name:
 */
typedef enum TrustedFileRule {
    /* A directory, not a regular file, with any number of names */
    TRUST_DIRECTORY = 1 << 0,
    /* Root may own it: root controls the guest without a file */
    TRUST_ROOT = 1 << 1,
    /* Other users may read it, but not write to it */
    TRUST_READERS = 1 << 2,
    /*
     * Directories only: other users may add to it if it is sticky, as /tmp is
     */
    TRUST_STICKY = 1 << 3,
    /* Any mode: the caller checks that nobody has it open, and sets the mode */
    TRUST_ANY_MODE = 1 << 4,
    /* The file may have other names; it is only read */
    TRUST_LINKS = 1 << 5,
} TrustedFileRule;

/*
 * The reason why a file like @st, from fstat(), is not trusted by @rules, a set
 * of TrustedFileRule: a sentence, to be freed; NULL if the file is trusted.
 */
char *trusted_file_refusal(const struct stat *st, unsigned rules);

/* The same for an open file */
char *trusted_file_fd_refusal(int fd, unsigned rules);

/*
 * The reason why no file in @dir, an open directory, can be trusted, whoever
 * owns it: other users might replace it.  To be freed, or NULL.
 */
char *trusted_dir_refusal(int dir);

/* Whether a file like @st belongs to the user that QEMU runs as */
bool trusted_file_is_ours(const struct stat *st);

/*
 * openat() for a file that has not been checked yet: it follows no symbolic
 * link and never waits.  A file that it creates (O_CREAT in @flags) is for this
 * user alone.
 */
int trusted_file_open(int dir, const char *path, int flags);

/*
 * The text for @err, errno of trusted_file_open(); valid as long as
 * g_strerror()'s
 */
const char *trusted_file_open_error(int err);

/*
 * Whether no other process has the file open, except by a copy of @fd; errno is
 * EAGAIN if one has.  If none has and @hold, other processes that open it wait
 * until @fd is closed, or until the kernel breaks the lease (45 s).
 */
bool trusted_file_is_ours_alone(int fd, bool hold);

#endif
