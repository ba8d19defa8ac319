/*
 * A snapshot's RAM in a file, for those who load it later
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef RAM_RESET_TEMPLATE_FILE_H
#define RAM_RESET_TEMPLATE_FILE_H

#include "system/ram-reset/block/copy.h"
#include "system/ram-reset/block/overlay-map.h"
#include "system/ram-reset/prim/prim.h"
#include "system/ram-reset/template/name.h"

/*
 * The file has the layout of RAM: a block lies in it as it does in memory, so
 * that parts of it can be mapped.  What is zero is left out, as holes.
 *
 *     magic (8 bytes), length of the index in bytes (8), SHA-256 of it (32)
 *     index: a GVariant, see file.c
 *     each block, from a multiple of TEMPLATE_FILE_ALIGN on
 *
 * Numbers are in the host's byte order, and another order is another magic.
 *
 * A file is complete from the moment that it has its name: it is written and
 * locked under another one.  From then on it is never changed, and has the
 * modification time that its index says, which write() would not leave as it
 * is, nor most ways to change it.  It belongs to the user that QEMU runs as,
 * and has mode 0600.
 * Who uses it has it locked, shared; who removes it does so only if nobody has.
 *
 * Directories are descriptors of open ones.  Reasons are sentences, to be
 * freed.  No locking between threads.
 */
#define TEMPLATE_FILE_ALIGN (UINT64_C(2) << 20)

/*
 * Runs of a block are joined until there are no more than this, or it would
 * get too large
 */
#define TEMPLATE_FILE_RUNS  OVERLAY_MAP_MAX

/*
 * @len: bytes, a multiple of the page size
 * @offset: where in the file it begins
 * @runs: of PrimRange, in whole pages and in rising order, not adjacent: what
 *     the file has of it, in full.  All other pages are zero.
 */
typedef struct TemplateBlock {
    char *name;
    uint64_t len, offset;
    GArray *runs;
} TemplateBlock;

/*
 * @fd: open for reading and locked, or -1
 * @identity: of what the file is a copy; any text
 * @note: a number that its maker wants to have back
 * @size: of the file, holes included, in bytes
 * @blocks: of TemplateBlock
 */
typedef struct TemplateFile {
    int fd;
    char *identity;
    int64_t note;
    uint64_t page_size, size;
    int64_t modified;           /* seconds since 1970 */
    GArray *blocks;
} TemplateFile;

/* A file that has not been written yet, without blocks */
TemplateFile *template_file_new(const char *identity, int64_t note,
                                uint64_t page_size);

/*
 * Join @runs, taken over, where the gaps between them are small, until they
 * are at most TEMPLATE_FILE_RUNS; but never so that they more than double.
 */
void template_file_add_block(TemplateFile *f, const char *name, uint64_t len,
                             GArray *runs);

/* Closes it, if it is open */
void template_file_free(TemplateFile *f);

/* Bytes in the runs of all blocks */
uint64_t template_file_content(const TemplateFile *f);

/* The number of the block called @name in @f, -1 if there is none */
int template_file_find_block(const TemplateFile *f, const char *name);

/* Bytes from where block @nr begins to where the next one does */
uint64_t template_file_room(const TemplateFile *f, unsigned nr);

/* What it has of block @nr; as ram_copy_of_file() */
RamCopy *template_file_copy(const TemplateFile *f, unsigned nr);

/*
 * Write @f, and give it its name in @dir; a file that had it is replaced.
 * @hosts: where the content of each block is.  Takes as long as the storage
 * does.  @f has no descriptor afterwards, the file is there to be opened; if
 * somebody else has made it meanwhile, it is theirs.
 * False with @reason set, and nothing left behind, if that is impossible; or
 * because somebody else is at it.
 */
bool template_file_write(TemplateFile *f, int dir, uint8_t *const hosts[],
                         char **reason);

/*
 * Open and lock the file for @identity.  NULL with @reason set if it cannot be
 * trusted, or NULL with no reason if there is none.  Of its content only the
 * index has been read.
 */
TemplateFile *template_file_open(int dir, const char *identity, char **reason);

#endif
