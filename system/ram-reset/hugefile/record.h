/*
 * The record of a hugepage file between two runs
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef RAM_RESET_HUGEFILE_RECORD_H
#define RAM_RESET_HUGEFILE_RECORD_H

#include "qapi/error.h"

/*
 * The record is a small text file of its own, since hugetlbfs has no write().
 * It lists the hugepages of the RAM file that may hold bytes of a guest.  If
 * the record does not prove the contrary, all pages may.  So:
 *
 * - Before the RAM file may be written to, the record is overwritten by one
 *   that says "in use".  Only a clean exit overwrites that.
 * - It is written over an empty file and ends with a checksum of all text
 *   before it, so that half a record is invalid.
 * - It names the RAM file (device, inode, size), the boot of the host, and an
 *   access time that QEMU has set: the kernel sets another one whenever a
 *   process maps the file, unless by a descriptor opened with O_NOATIME.
 *
 * The file is locked while it is open.  It belongs to the user that QEMU runs
 * as, and no other user may use it.
 */
typedef struct HugeRecord {
    bool in_use;
    int64_t pid;                /* the QEMU that uses it, or used it last */
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
 * Open and lock the file at @path, and create it if there is none; its
 * directory must exist.  Returns a file descriptor to be closed, or -1 with
 * @errp set.  Refuses a symbolic link, another user's file, a file that other
 * users may use, one that another process has locked, and one with other
 * content.
 */
int hugefile_record_open(const char *path, Error **errp);

/*
 * Read the record in @fd into @rec, which is cleared before.  False with @errp
 * set if the record is damaged.  An empty file has no record: this returns true
 * and leaves @rec cleared.
 */
bool hugefile_record_read(int fd, HugeRecord *rec, Error **errp);

/*
 * Overwrite the record in @fd.  0, or -errno: then there is no valid record, or
 * the old one is left (if the file could not be truncated).
 */
int hugefile_record_write(int fd, const HugeRecord *rec);

/* The id of this boot of the host, to be freed; NULL if it is unknown */
char *hugefile_record_boot_id(void);

#endif
