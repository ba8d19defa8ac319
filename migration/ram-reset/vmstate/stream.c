/*
 * Reading RAM's part of a saved VM state without loading it
 *
 * A saved VM state is a header, the configuration, then sections.  savevm
 * writes RAM first, unless QEMU must load a device before it.  Only the
 * device's own code knows the length of its section, so the walk stops there.
 * See docs/devel/migration/main.rst.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qapi/error.h"
#include "qemu/main-loop.h"
#include "exec/target_page.h"
#include "migration/migration.h"
#include "migration/options.h"
#include "migration/qemu-file.h"
#include "migration/ram-reset/vmstate/stream-mapped-ram.h"
#include "migration/ram-reset/vmstate/stream.h"

static void stream_get_name(RamStream *s, char *name)
{
    uint8_t len = qemu_get_byte(s->f);

    memset(name, 0, VMSTATE_NAME);
    qemu_get_buffer(s->f, (uint8_t *)name, len);
}

static void stream_skip(RamStream *s, size_t len)
{
    uint8_t buf[VMSTATE_NAME];

    while (len && !qemu_file_get_error(s->f)) {
        size_t n = MIN(len, sizeof(buf));

        qemu_get_buffer(s->f, buf, n);
        len -= n;
    }
}

/* Each subsection of the configuration has a known layout */
static RamStreamResult stream_subsection(RamStream *s)
{
    char name[VMSTATE_NAME], capability[VMSTATE_NAME];

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
            error_setg(s->errp, "the VM state is damaged: it has %" PRIu32
                       " capabilities", count);
            return RAM_STREAM_BAD;
        }
        while (count-- && !qemu_file_get_error(s->f)) {
            stream_get_name(s, capability);
            s->ignore_shared |= !strcmp(capability, "x-ignore-shared");
            s->mapped_ram |= !strcmp(capability, "mapped-ram");
        }
    } else {
        error_setg(s->errp, "the VM state has an unknown subsection '%s'",
                   name);
        return RAM_STREAM_UNKNOWN;
    }
    return ram_stream_check(s);
}

static RamStreamResult stream_configuration(RamStream *s)
{
    RamStreamResult res = RAM_STREAM_DONE;
    char name[VMSTATE_NAME] = "";
    uint32_t len = qemu_get_be32(s->f);

    qemu_get_buffer(s->f, (uint8_t *)name, MIN(len, VMSTATE_NAME - 1));
    if (len >= VMSTATE_NAME) {
        error_setg(s->errp, "the machine type in the VM state is damaged");
        return RAM_STREAM_BAD;
    }
    res = ram_stream_check(s);
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
    RamStreamResult res = ram_stream_check(s);

    if (res != RAM_STREAM_DONE) {
        return res;
    }
    if (magic != QEMU_VM_FILE_MAGIC || version != QEMU_VM_FILE_VERSION) {
        error_setg(s->errp, "this is not a VM state: magic %08" PRIx32
                   ", version %" PRIu32, magic, version);
        return RAM_STREAM_BAD;
    }
    if (qemu_peek_byte(s->f, 0) == QEMU_VM_CONFIGURATION) {
        qemu_get_byte(s->f);
        return stream_configuration(s);
    }
    return RAM_STREAM_DONE;
}

static RamStreamResult stream_blocks(RamStream *s, uint64_t total)
{
    RamStreamResult res = RAM_STREAM_DONE;

    while (total && res == RAM_STREAM_DONE) {
        char name[VMSTATE_NAME];
        uint64_t len;

        stream_get_name(s, name);
        len = qemu_get_be64(s->f);
        if (s->ignore_shared) {
            qemu_get_be64(s->f);
        }
        res = ram_stream_check(s);
        if (res != RAM_STREAM_DONE) {
            break;
        }
        if (!name[0] || len > total) {
            error_setg(s->errp, "the list of RAM blocks is damaged: block "
                       "'%s' has %" PRIu64 " of %" PRIu64 " bytes", name, len,
                       total);
            return RAM_STREAM_BAD;
        }
        total -= len;
        if (s->visitor->block &&
            !s->visitor->block(s->opaque, name, len, s->errp)) {
            return RAM_STREAM_STOPPED;
        }
        if (s->mapped_ram) {
            res = ram_stream_mapped_block(s, name, len);
        }
    }
    s->finished = s->mapped_ram || !s->visitor->pages;
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
    res = ram_stream_check(s);
    if (res == RAM_STREAM_DONE &&
        !s->visitor->pages(s->opaque, s->block, offset, data, size, s->errp)) {
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

        res = ram_stream_check(s);
        if (res != RAM_STREAM_DONE) {
            break;
        }
        switch (flags & ~RAM_SAVE_FLAG_CONTINUE) {
        case RAM_SAVE_FLAG_MEM_SIZE:
            res = stream_blocks(s, offset);
            break;
        case RAM_SAVE_FLAG_ZERO:
        case RAM_SAVE_FLAG_PAGE:
            if (!s->visitor->pages) {
                error_setg(s->errp, "pages come before the list of RAM blocks");
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
            error_setg(s->errp, "a RAM record has unknown flags 0x%x", flags);
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
        char name[VMSTATE_NAME];

        stream_get_name(s, name);
        qemu_get_be32(s->f);
        qemu_get_be32(s->f);
        if (strcmp(name, "ram")) {
            error_setg(s->errp, "section '%s' comes before the end of RAM",
                       name);
            return RAM_STREAM_UNKNOWN;
        }
        s->section = section;
    } else if (section != s->section) {
        error_setg(s->errp, "section %" PRIu32 " comes before the end of "
                   "RAM", section);
        return RAM_STREAM_UNKNOWN;
    }
    res = stream_ram(s);
    if (res == RAM_STREAM_DONE && !s->finished &&
        migrate_get_current()->send_section_footer) {
        uint8_t mark = qemu_get_byte(s->f);

        qemu_get_be32(s->f);
        res = ram_stream_check(s);
        if (res == RAM_STREAM_DONE && mark != QEMU_VM_SECTION_FOOTER) {
            error_setg(s->errp, "a RAM section has no footer");
            return RAM_STREAM_BAD;
        }
    }
    s->finished |= type == QEMU_VM_SECTION_END;
    return res;
}

/* @page: room for a target page */
static RamStream stream_new(QEMUFile *f, const RamStreamVisitor *visitor,
                            void *opaque, uint8_t *page, Error **errp)
{
    return (RamStream) {
        .f = f,
        .visitor = visitor,
        .opaque = opaque,
        .page = page,
        .ignore_shared = migrate_ignore_shared(),
        .mapped_ram = migrate_mapped_ram(),
        .errp = errp,
    };
}

RamStreamResult ram_stream_walk(QEMUFile *f, const RamStreamVisitor *visitor,
                                void *opaque, Error **errp)
{
    g_autofree uint8_t *page = g_malloc(qemu_target_page_size());
    RamStream s = stream_new(f, visitor, opaque, page, errp);
    RamStreamResult res = stream_header(&s);

    while (res == RAM_STREAM_DONE && !s.finished) {
        uint8_t type = qemu_get_byte(f);

        res = ram_stream_check(&s);
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
            res = ram_stream_check(&s);
            break;
        default:
            error_setg(errp, "a section of type %u comes before the end of "
                       "RAM", type);
            res = RAM_STREAM_UNKNOWN;
        }
    }
    return res;
}

RamStreamResult ram_stream_walk_section(QEMUFile *f, int64_t at,
                                        const RamStreamVisitor *visitor,
                                        void *opaque, Error **errp)
{
    g_autofree uint8_t *page = g_malloc(qemu_target_page_size());
    RamStream s = stream_new(f, visitor, opaque, page, errp);
    RamStreamResult res;

    qemu_set_offset(f, at, SEEK_SET);
    res = stream_ram(&s);
    if (res == RAM_STREAM_DONE && !s.finished) {
        error_setg(errp, "the RAM section does not have all of RAM");
        return RAM_STREAM_UNKNOWN;
    }
    return res;
}
