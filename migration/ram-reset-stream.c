/*
 * Reading RAM's part of a saved VM state without loading it
 *
 * A saved VM state is a header, the configuration, then sections.  savevm
 * writes RAM first, unless QEMU must load a device before it.  Only the
 * device's own code can tell where such a section ends, so the walk gives up
 * there.  See docs/devel/migration/main.rst.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qapi/error.h"
#include "qemu/main-loop.h"
#include "exec/target_page.h"
#include "channel-block.h"
#include "migration.h"
#include "options.h"
#include "qemu-file.h"
#include "ram.h"
#include "savevm.h"
#include "migration/ram-reset-stream.h"

#define NAME_SIZE 256

typedef struct RamStream {
    QEMUFile *f;
    const RamStreamVisitor *visitor;
    void *opaque;
    char block[NAME_SIZE];
    uint8_t *page;
    uint32_t section;
    uint64_t next_offset;   /* with mapped-ram, behind the last block's pages */
    bool ignore_shared;     /* the RAM blocks come with their addresses */
    bool mapped_ram;        /* each block is followed by its pages */
    bool finished;          /* nothing more is wanted */
    Error **errp;
} RamStream;

/*
 * A read that fails sets an error in the file.  One beyond the end need not:
 * a qcow2 image has zeros there, so nothing may loop for as long as they last.
 */
static RamStreamResult stream_check(RamStream *s)
{
    int ret = qemu_file_get_error(s->f);

    if (ret) {
        error_setg_errno(s->errp, -ret, "the VM state ends too early, or "
                         "cannot be read");
        return RAM_STREAM_BAD;
    }
    return RAM_STREAM_DONE;
}

static void stream_get_name(RamStream *s, char *name)
{
    uint8_t len = qemu_get_byte(s->f);

    memset(name, 0, NAME_SIZE);
    qemu_get_buffer(s->f, (uint8_t *)name, len);
}

static void stream_skip(RamStream *s, size_t len)
{
    uint8_t buf[NAME_SIZE];

    while (len && !qemu_file_get_error(s->f)) {
        size_t n = MIN(len, sizeof(buf));

        qemu_get_buffer(s->f, buf, n);
        len -= n;
    }
}

/* The subsections of the configuration, all of which have a known layout */
static RamStreamResult stream_subsection(RamStream *s)
{
    char name[NAME_SIZE], capability[NAME_SIZE];

    qemu_get_byte(s->f);
    stream_get_name(s, name);
    qemu_get_be32(s->f);
    if (!strcmp(name, "configuration/target-page-bits")) {
        qemu_get_be32(s->f);
    } else if (!strcmp(name, "configuration/uuid")) {
        stream_skip(s, 16);
    } else if (!strcmp(name, "configuration/capabilities")) {
        uint32_t count = qemu_get_be32(s->f);

        if (count > MIGRATION_CAPABILITY__MAX) {
            error_setg(s->errp, "the VM state has %" PRIu32 " capabilities, "
                       "it is damaged", count);
            return RAM_STREAM_BAD;
        }
        while (count-- && !qemu_file_get_error(s->f)) {
            stream_get_name(s, capability);
            s->ignore_shared |= !strcmp(capability, "x-ignore-shared");
            s->mapped_ram |= !strcmp(capability, "mapped-ram");
        }
    } else {
        error_setg(s->errp, "the VM state has an unknown '%s'", name);
        return RAM_STREAM_UNKNOWN;
    }
    return stream_check(s);
}

static RamStreamResult stream_configuration(RamStream *s)
{
    RamStreamResult res = RAM_STREAM_DONE;
    char name[NAME_SIZE] = "";
    uint32_t len = qemu_get_be32(s->f);

    qemu_get_buffer(s->f, (uint8_t *)name, MIN(len, NAME_SIZE - 1));
    if (len >= NAME_SIZE) {
        error_setg(s->errp, "the VM state's machine type is damaged");
        return RAM_STREAM_BAD;
    }
    res = stream_check(s);
    s->ignore_shared = false;
    s->mapped_ram = false;
    while (res == RAM_STREAM_DONE &&
           qemu_peek_byte(s->f, 0) == QEMU_VM_SUBSECTION) {
        res = stream_subsection(s);
    }
    if (res == RAM_STREAM_DONE && s->visitor->configuration &&
        !s->visitor->configuration(s->opaque, name, s->ignore_shared,
                                   s->mapped_ram, s->errp)) {
        return RAM_STREAM_STOPPED;
    }
    return res;
}

static RamStreamResult stream_header(RamStream *s)
{
    uint32_t magic = qemu_get_be32(s->f);
    uint32_t version = qemu_get_be32(s->f);
    RamStreamResult res = stream_check(s);

    if (res != RAM_STREAM_DONE) {
        return res;
    }
    if (magic != QEMU_VM_FILE_MAGIC || version != QEMU_VM_FILE_VERSION) {
        error_setg(s->errp, "it is not a VM state: magic %08" PRIx32
                   ", version %" PRIu32, magic, version);
        return RAM_STREAM_BAD;
    }
    if (qemu_peek_byte(s->f, 0) == QEMU_VM_CONFIGURATION) {
        qemu_get_byte(s->f);
        return stream_configuration(s);
    }
    return RAM_STREAM_DONE;
}

/* @at: of the bitmap of pages that are not zero, and of all pages */
static RamStreamResult stream_mapped_pages(RamStream *s, const char *name,
                                           uint64_t len, const uint64_t at[2])
{
    size_t size = qemu_target_page_size();
    uint64_t nr = len / size, bytes = BITS_TO_LONGS(nr) * sizeof(long);
    g_autofree unsigned long *stored = g_try_malloc0(bytes);
    RamStreamResult res;

    if (!stored && bytes) {
        error_setg(s->errp, "there is no memory for the list of pages of block "
                   "'%s', of %" PRIu64 " bytes", name, len);
        return RAM_STREAM_BAD;
    }
    qemu_get_buffer_at(s->f, (uint8_t *)stored, bytes, at[0]);
    res = stream_check(s);
    for (uint64_t i = 0; i < nr && res == RAM_STREAM_DONE; i++) {
        bool zero = !test_bit(i, stored);

        if (!zero) {
            qemu_get_buffer_at(s->f, s->page, size, at[1] + i * size);
        }
        res = stream_check(s);
        if (res == RAM_STREAM_DONE &&
            !s->visitor->page(s->opaque, name, i * size,
                              zero ? NULL : s->page, s->errp)) {
            return RAM_STREAM_STOPPED;
        }
    }
    return res;
}

/* See MappedRamHeader in ram.c; the next block comes behind the pages */
static RamStreamResult stream_mapped_block(RamStream *s, const char *name,
                                           uint64_t len)
{
    uint32_t version = qemu_get_be32(s->f);
    uint64_t size = qemu_get_be64(s->f), bitmap = qemu_get_be64(s->f);
    uint64_t at[2] = { bitmap, qemu_get_be64(s->f) }, end;

    if (version != 1 || size != qemu_target_page_size()) {
        error_setg(s->errp, "mapped-ram %" PRIu32 " with pages of %" PRIu64
                   " bytes", version, size);
        return RAM_STREAM_UNKNOWN;
    }
    /* Since 11.1 that of a block that is ignored */
    if (s->ignore_shared && !at[0]) {
        return stream_check(s);
    }
    if (at[0] <= s->next_offset || at[1] <= at[0] ||
        uadd64_overflow(at[1], len, &end) || end > INT64_MAX) {
        error_setg(s->errp, "its list of RAM blocks is damaged: the pages of "
                   "block '%s' are at offset %" PRIu64, name, at[1]);
        return RAM_STREAM_BAD;
    }
    s->next_offset = end;
    qemu_set_offset(s->f, end, SEEK_SET);
    return s->visitor->page ? stream_mapped_pages(s, name, len, at) :
                              stream_check(s);
}

static RamStreamResult stream_blocks(RamStream *s, uint64_t total)
{
    RamStreamResult res = RAM_STREAM_DONE;

    while (total && res == RAM_STREAM_DONE) {
        char name[NAME_SIZE];
        uint64_t len;

        stream_get_name(s, name);
        len = qemu_get_be64(s->f);
        if (s->ignore_shared) {
            qemu_get_be64(s->f);
        }
        res = stream_check(s);
        if (res != RAM_STREAM_DONE) {
            break;
        }
        if (!name[0] || len > total) {
            error_setg(s->errp, "its list of RAM blocks is damaged: block "
                       "'%s' with %" PRIu64 " of %" PRIu64 " bytes", name,
                       len, total);
            return RAM_STREAM_BAD;
        }
        total -= len;
        if (s->visitor->block &&
            !s->visitor->block(s->opaque, name, len, s->errp)) {
            return RAM_STREAM_STOPPED;
        }
        if (s->mapped_ram) {
            res = stream_mapped_block(s, name, len);
        }
    }
    s->finished = s->mapped_ram || !s->visitor->page;
    return res;
}

static RamStreamResult stream_page(RamStream *s, uint64_t offset, bool zero,
                                   bool same_block)
{
    size_t size = qemu_target_page_size();
    uint8_t *data = NULL;
    RamStreamResult res;

    if (!same_block) {
        stream_get_name(s, s->block);
    }
    if (zero) {
        qemu_get_byte(s->f);
    } else {
        data = s->page;
        qemu_get_buffer_in_place(s->f, &data, size);
    }
    res = stream_check(s);
    if (res == RAM_STREAM_DONE &&
        !s->visitor->page(s->opaque, s->block, offset, data, s->errp)) {
        return RAM_STREAM_STOPPED;
    }
    return res;
}

/* The content of one RAM section */
static RamStreamResult stream_ram(RamStream *s)
{
    RamStreamResult res = RAM_STREAM_DONE;

    while (res == RAM_STREAM_DONE && !s->finished) {
        uint64_t addr = qemu_get_be64(s->f);
        uint64_t offset = addr & qemu_target_page_mask();
        unsigned flags = addr & ~qemu_target_page_mask();

        res = stream_check(s);
        if (res != RAM_STREAM_DONE) {
            break;
        }
        switch (flags & ~RAM_SAVE_FLAG_CONTINUE) {
        case RAM_SAVE_FLAG_MEM_SIZE:
            res = stream_blocks(s, offset);
            break;
        case RAM_SAVE_FLAG_ZERO:
        case RAM_SAVE_FLAG_PAGE:
            if (!s->visitor->page) {
                error_setg(s->errp, "pages come before the RAM blocks");
                return RAM_STREAM_BAD;
            }
            res = stream_page(s, offset, flags & RAM_SAVE_FLAG_ZERO,
                              flags & RAM_SAVE_FLAG_CONTINUE);
            break;
        case RAM_SAVE_FLAG_MULTIFD_FLUSH:
            break;
        case RAM_SAVE_FLAG_EOS:
            return RAM_STREAM_DONE;
        default:
            error_setg(s->errp, "RAM record with flags 0x%x", flags);
            return RAM_STREAM_UNKNOWN;
        }
    }
    return res;
}

static RamStreamResult stream_section(RamStream *s, uint8_t type)
{
    uint32_t section = qemu_get_be32(s->f);
    RamStreamResult res;

    if (type == QEMU_VM_SECTION_START) {
        char name[NAME_SIZE];

        stream_get_name(s, name);
        qemu_get_be32(s->f);
        qemu_get_be32(s->f);
        if (strcmp(name, "ram")) {
            error_setg(s->errp, "section '%s' is in the way", name);
            return RAM_STREAM_UNKNOWN;
        }
        s->section = section;
    } else if (section != s->section) {
        error_setg(s->errp, "section %" PRIu32 " is in the way", section);
        return RAM_STREAM_UNKNOWN;
    }
    res = stream_ram(s);
    if (res == RAM_STREAM_DONE && !s->finished &&
        migrate_get_current()->send_section_footer) {
        uint8_t mark = qemu_get_byte(s->f);

        qemu_get_be32(s->f);
        res = stream_check(s);
        if (res == RAM_STREAM_DONE && mark != QEMU_VM_SECTION_FOOTER) {
            error_setg(s->errp, "RAM section without a footer");
            return RAM_STREAM_BAD;
        }
    }
    s->finished |= type == QEMU_VM_SECTION_END;
    return res;
}

QEMUFile *ram_stream_open(BlockDriverState *bs)
{
    QIOChannel *ioc = QIO_CHANNEL(qio_channel_block_new(bs));
    QEMUFile *f = qemu_file_new_input(ioc);

    object_unref(OBJECT(ioc));
    return f;
}

RamStreamResult ram_stream_walk(QEMUFile *f, const RamStreamVisitor *visitor,
                                void *opaque, Error **errp)
{
    g_autofree uint8_t *page = g_malloc(qemu_target_page_size());
    RamStream s = {
        .f = f,
        .visitor = visitor,
        .opaque = opaque,
        .page = page,
        .ignore_shared = migrate_ignore_shared(),
        .mapped_ram = migrate_mapped_ram(),
        .errp = errp,
    };
    RamStreamResult res = stream_header(&s);

    while (res == RAM_STREAM_DONE && !s.finished) {
        uint8_t type = qemu_get_byte(f);

        res = stream_check(&s);
        if (res != RAM_STREAM_DONE) {
            break;
        }
        switch (type) {
        case QEMU_VM_SECTION_START:
        case QEMU_VM_SECTION_PART:
        case QEMU_VM_SECTION_END:
            res = stream_section(&s, type);
            break;
        case QEMU_VM_COMMAND:
            qemu_get_be16(f);
            stream_skip(&s, qemu_get_be16(f));
            res = stream_check(&s);
            break;
        default:
            error_setg(errp, "a section of type %u comes before the end of "
                       "RAM", type);
            res = RAM_STREAM_UNKNOWN;
        }
    }
    return res;
}
