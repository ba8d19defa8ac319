/*
 * Templates: a snapshot's RAM in a file, for later loads
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef RAM_RESET_TEMPLATE_FILE_H
#define RAM_RESET_TEMPLATE_FILE_H

#include "qapi/error.h"
#include "system/ram-reset/block/copy.h"
#include "system/ram-reset/block/overlay-map.h"
#include "system/ram-reset/prim/prim.h"
#include "system/ram-reset/template/name.h"

/*
 * The file has the layout of RAM: a block has the same layout in it as in
 * memory, so that parts of it can be mapped.  Zeros are left out, as holes.
 *
 *     magic (8 bytes), length of the index in bytes (8), SHA-256 of it (32)
 *     index: a GVariant, see file.c
 *     each block, from a multiple of TEMPLATE_FILE_ALIGN on
 *
 * Numbers are in the host's byte order, and another order is another magic.
 *
 * A file is complete as soon as it has its name: it is written and locked under
 * another name.  From then on it never changes.  Its modification time is
 * stored in its index; write(), and most other ways to change the file, would
 * change that time.  It belongs to the user that QEMU runs as, and has mode
 * 0600.
 *
 * A process that uses the file has a shared lock on it.  A file is only removed
 * if nobody has a lock.
 *
 * Directories are open descriptors.  The caller does all locking between
 * threads.
 */
#define TEMPLATE_FILE_ALIGN (UINT64_C(2) << 20)

/*
 * Runs of a block are joined until there are at most this many, or the block
 * would get too large
 */
#define TEMPLATE_FILE_RUNS  OVERLAY_MAP_MAX

/*
 * @len: bytes, a multiple of the page size
 * @offset: offset in the file
 * @runs: array of PrimRange, whole pages in rising order, not adjacent: the
 *     parts that the file has, in full.  All other pages are zero.
 */
typedef struct TemplateBlock {
    char *name;
    uint64_t len, offset;
    GArray *runs;
} TemplateBlock;

/*
 * @fd: open for reading and locked, or -1
 * @identity: name of the snapshot that the file is a copy of; any text
 * @note: a number that is stored for the caller
 * @size: of the file, holes included, in bytes
 * @blocks: array of TemplateBlock
 */
typedef struct TemplateFile {
    int fd;
    char *identity;
    int64_t note;
    uint64_t page_size, size;
    int64_t modified;           /* seconds since 1970 */
    GArray *blocks;
} TemplateFile;

/* Make a file that has not been written yet, without blocks */
TemplateFile *template_file_new(const char *identity, int64_t note,
                                uint64_t page_size);

/*
 * Add a block; takes ownership of @runs.  Runs with small gaps between them are
 * joined until there are at most TEMPLATE_FILE_RUNS, unless their size would
 * more than double.
 */
void template_file_add_block(TemplateFile *f, const char *name, uint64_t len,
                             GArray *runs);

/* Close the file if it is open, and free @f */
void template_file_free(TemplateFile *f);

/* Size of the runs of all blocks in bytes */
uint64_t template_file_content(const TemplateFile *f);

/* The index of the block called @name in @f, -1 if there is none */
int template_file_find_block(const TemplateFile *f, const char *name);

/* Bytes from the beginning of block @nr to that of the next one */
uint64_t template_file_room(const TemplateFile *f, unsigned nr);

/* A copy of block @nr, made by ram_copy_of_file() */
RamCopy *template_file_copy(const TemplateFile *f, unsigned nr);

/*
 * Write @f, and give it its name in @dir; overwrites a file of that name.
 * @hosts: addresses of the content of each block.  This takes as long as the
 * storage needs.  @f has no descriptor afterwards; the file can be opened.  If
 * another process has made the file meanwhile, it may be that one.  On failure
 * returns false with @errp set, and leaves nothing behind; it also fails
 * while another process writes the same file.
 */
bool template_file_write(TemplateFile *f, int dir, uint8_t *const hosts[],
                         Error **errp);

/*
 * Open and lock the file for @identity.  False with @errp set if it cannot be
 * trusted.  If there is none, this returns true and sets *@f to NULL.  Only the
 * index is read.
 */
bool template_file_open(int dir, const char *identity, TemplateFile **f,
                        Error **errp);

#endif
