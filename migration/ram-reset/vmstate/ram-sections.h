/*
 * RAM's sections in the VM state that is being loaded
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef MIGRATION_RAM_RESET_VMSTATE_RAM_SECTIONS_H
#define MIGRATION_RAM_RESET_VMSTATE_RAM_SECTIONS_H

#include "migration/qemu-file-types.h"
#include "migration/ram-reset/vmstate/page-places.h"

/*
 * The first RAM section has the list of blocks and no pages.  All other ones
 * can be skipped at once if nothing else lies between them.  The first load
 * checks that, section by section.  All functions need the BQL.  Positions are
 * in bytes.
 */

/**
 * RamSections: the progress of their load; starts as zeroed memory
 *
 * @f: the VM state; NULL before the first section
 * @count: the number of sections that have begun
 * @places: those of pages in all sections but the first; NULL: not noted
 * @last: the current section is the last one
 * @start: the position of the content of the first section; -1 if it is
 *     unknown, 0 if it was not noted
 * @end: the position of the footer of the section that was loaded last; -1 if
 *     it is unknown, or if something else lies between two sections, other than
 *     the first two
 * @skipped_from: the position before ram_sections_skip()
 */
typedef struct RamSections {
    QEMUFile *f;
    unsigned count;
    PagePlaces *places;
    bool last;
    int64_t start;
    int64_t end;
    int64_t skipped_from;
} RamSections;

/* Read @len bytes of the VM state; false if they cannot be read */
typedef bool RamSectionsRead(void *opaque, uint8_t *buf, int64_t at,
                             size_t len);

/** ram_sections_read_image: for a VM state in an image, a BlockDriverState */
bool ram_sections_read_image(void *bs, uint8_t *buf, int64_t at, size_t len);

/**
 * ram_sections_enter: a section is about to be loaded or skipped
 *
 * @f: the VM state, at the content of the section
 * @note_first: note the position of the first section, which takes some time
 */
void ram_sections_enter(RamSections *s, QEMUFile *f, bool note_first);

/**
 * ram_sections_note_start: check, before a section is loaded, that it follows
 * the previous one
 *
 * @read: called with @opaque to look at the VM state
 */
void ram_sections_note_start(RamSections *s, RamSectionsRead *read,
                             void *opaque);

/**
 * ram_sections_note_end: note the position of the footer, after the section was
 * loaded
 */
void ram_sections_note_end(RamSections *s);

/**
 * ram_sections_skip: move the VM state from the second section to the footer at
 * @end
 *
 * Returns: false if there is no footer; the position is unchanged then
 */
bool ram_sections_skip(RamSections *s, int64_t end);

/** ram_sections_return: move back to where ram_sections_skip() was called */
void ram_sections_return(RamSections *s);

#endif
