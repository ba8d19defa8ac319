/*
 * Templates: declarations shared by reading and writing a file
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef RAM_RESET_TEMPLATE_FILE_INTERNAL_H
#define RAM_RESET_TEMPLATE_FILE_INTERNAL_H

#include <sys/file.h>
#include <sys/vfs.h>
#include "system/ram-reset/template/file.h"

#define TEMPLATE_FILE_MAGIC     UINT64_C(0x31304d455454414d)
/* In bytes; a file with a larger index is not written */
#define TEMPLATE_FILE_MAX_INDEX (UINT64_C(64) << 20)

/* Identity, note, page size, file size, time; name, length, offset, runs */
#define TEMPLATE_FILE_INDEX_TYPE "(sxttxa(stta(tt)))"

/* @checksum: the SHA-256 of the index, which follows */
typedef struct TemplateHead {
    uint64_t magic, index_len;
    uint8_t checksum[32];
} TemplateHead;

static inline TemplateBlock *template_file_block(const TemplateFile *f,
                                                 unsigned i)
{
    return &g_array_index(f->blocks, TemplateBlock, i);
}

/* A file without anything but an empty array of blocks */
TemplateFile *template_file_alloc(void);

/* Make the index of @f; the caller must unreference it */
GVariant *template_file_pack(const TemplateFile *f);

/* Fill in @f from @index */
bool template_file_unpack(TemplateFile *f, GVariant *index, Error **errp);

/* Store 32 bytes in @sum */
void template_file_checksum(const void *data, size_t len, uint8_t *sum);

#endif
