/*
 * What is known of a hugepage file between two runs
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef RAM_RESET_HUGEFILE_RECORD_H
#define RAM_RESET_HUGEFILE_RECORD_H

/*
 * The record lies in a small text file of its own, since hugetlbfs cannot be
 * written to.  It says which hugepages of the RAM file may hold bytes of a
 * guest.  Whatever does not prove the contrary means: all of them.  So:
 *
 * - Before the RAM file may be written to, the record is replaced by one that
 *   says "in use".  Only an orderly end replaces that again.
 * - It is written over an empty file and ends with a checksum of all that is
 *   before it, so that half a record is none.
 * - It names the RAM file (device, inode, size), the boot of the host, and an
 *   access time that was set on purpose: the kernel sets another one whenever
 *   somebody maps the file, unless by a descriptor opened with O_NOATIME.
 *
 * The file is locked for as long as it is open, belongs to the user that QEMU
 * runs as, and is for that user alone.
 */
typedef struct HugeRecord {
    bool in_use;
    int64_t pid;                /* of the QEMU that uses it, or did last */
    char *boot_id;
    uint64_t device, inode;
    uint64_t page_size;         /* bytes */
    uint64_t pages;
    int64_t access_time;        /* ns since 1970 */
    unsigned long *dirty;       /* bitmap: what may hold bytes of a guest */
} HugeRecord;

/* Free what @rec points to; all zeros is a valid record to clear */
void hugefile_record_clear(HugeRecord *rec);

/*
 * Open and lock the file at @path, which is made if there is none; its
 * directory must exist.  Returns a file descriptor to be closed, or -1 with
 * @reason set to a sentence to be freed: a link, somebody else's file, one
 * that others may use, one that another process has locked, one that has
 * something else in it.
 */
int hugefile_record_open(const char *path, char **reason);

/*
 * Read the record in @fd into @rec, which is cleared before.  False if there
 * is none: @reason is then NULL if the file is empty, or else says what is
 * wrong with it, and is to be freed.
 */
bool hugefile_record_read(int fd, HugeRecord *rec, char **reason);

/*
 * Replace the record in @fd.  0, or -errno: there is no valid record then, or
 * (-errno of truncating the file) the one that was there.
 */
int hugefile_record_write(int fd, const HugeRecord *rec);

/* This boot of the host, to be freed; NULL if the kernel does not tell */
char *hugefile_record_boot_id(void);

#endif
