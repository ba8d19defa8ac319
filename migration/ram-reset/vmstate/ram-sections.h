/*
 * RAM's sections in the VM state that is being loaded
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef MIGRATION_RAM_RESET_VMSTATE_RAM_SECTIONS_H
#define MIGRATION_RAM_RESET_VMSTATE_RAM_SECTIONS_H

#include "block/block.h"
#include "migration/qemu-file-types.h"

/*
 * The first section has no pages, only the list of blocks.  All others can be
 * skipped at once if nothing but RAM lies between the second and the last; it
 * is found out when they are loaded, section by section.
 */

/**
 * RamSections: how far they have been loaded; starts as zeroed memory
 *
 * @f: the VM state; NULL before RAM's first section
 * @count: of the sections that have begun
 * @last: the one that is being loaded is the last one
 * @start: where in the VM state the content of the first one begins; -1 if that
 *     is not known; 0 if it has not been noted
 * @end: where in the VM state the footer of the section that was loaded last
 *     is; -1 if something else lies between the sections but the first two,
 *     or that is not known
 */
typedef struct RamSections {
    QEMUFile *f;
    unsigned count;
    bool last;
    int64_t start;
    int64_t end;
} RamSections;

/**
 * ram_sections_enter: one more section is going to be loaded or skipped
 *
 * @f: the VM state, at the content of the section
 */
void ram_sections_enter(RamSections *s, QEMUFile *f);

/**
 * ram_sections_note_first: the first one is going to be loaded
 */
void ram_sections_note_first(RamSections *s);

/**
 * ram_sections_note_start: it is going to be loaded
 *
 * @bs: where the VM state is
 */
void ram_sections_note_start(RamSections *s, BlockDriverState *bs);

/**
 * ram_sections_note_end: it has been loaded
 */
void ram_sections_note_end(RamSections *s);

/**
 * ram_sections_skip: from the second section on, go on with the footer at @end
 *
 * Returns: false if there is none; nothing has changed then
 */
bool ram_sections_skip(RamSections *s, int64_t end);

#endif
