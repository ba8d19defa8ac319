/*
 * RAM's sections in the VM state that is being loaded
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/bswap.h"
#include "block/block.h"
#include "migration/qemu-file.h"
#include "migration/ram-reset/vmstate/format.h"
#include "migration/ram-reset/vmstate/ram-sections.h"

/* Returns the position of @f in the VM state; -1 if it is unknown */
static int64_t file_position(QEMUFile *f)
{
    uint8_t *buf;

    /* Only of a full buffer is the number of unused bytes known */
    if (qemu_peek_buffer(f, &buf, RAM_STREAM_BUFFER, 0) != RAM_STREAM_BUFFER) {
        return -1;
    }
    return qemu_get_offset(f) - RAM_STREAM_BUFFER;
}

bool ram_sections_read_image(void *bs, uint8_t *buf, int64_t at, size_t len)
{
    return bdrv_load_vmstate(bs, buf, at, len) >= 0;
}

/*
 * Check that nothing lies between two RAM sections.  @from is the footer of the
 * first one, @to the content of the second one.  The switchover command of a
 * migration, which has no data, is allowed: it has no effect here.
 */
static bool only_ram_between(RamSectionsRead *read, void *opaque, int64_t from,
                             int64_t to)
{
    int64_t head = from + SECTION_FOOTER;
    uint8_t between[COMMAND_HEAD];

    if (from < 0 || to != head + COMMAND_HEAD + SECTION_HEAD) {
        return from >= 0 && to == head + SECTION_HEAD;
    }
    return read(opaque, between, head, COMMAND_HEAD) &&
           between[0] == QEMU_VM_COMMAND && !lduw_be_p(between + 3);
}

void ram_sections_enter(RamSections *s, QEMUFile *f, bool note_first)
{
    s->f = f;
    s->count++;
    if (s->count == 1 && note_first) {
        s->start = file_position(f);
    }
}

void ram_sections_note_start(RamSections *s, RamSectionsRead *read,
                             void *opaque)
{
    int64_t here = file_position(s->f);

    if (s->count > 2 && !only_ram_between(read, opaque, s->end, here)) {
        here = -1;
    }
    s->end = here;
    if (s->places) {
        page_places_begin_section(s->places, here);
    }
}

void ram_sections_note_end(RamSections *s)
{
    if (s->f && s->end >= 0) {
        s->end = file_position(s->f);
    }
    if (s->places && s->count > 1) {
        page_places_end_section(s->places, s->end);
    }
}

bool ram_sections_skip(RamSections *s, int64_t end)
{
    int64_t here = file_position(s->f);

    if (here < 0) {
        return false;
    }
    qemu_set_offset(s->f, end, SEEK_SET);
    s->skipped_from = here;
    if (qemu_peek_byte(s->f, 0) == QEMU_VM_SECTION_FOOTER) {
        return true;
    }
    ram_sections_return(s);
    return false;
}

void ram_sections_return(RamSections *s)
{
    qemu_set_offset(s->f, s->skipped_from, SEEK_SET);
}
