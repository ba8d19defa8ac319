/*
 * The format of a VM state, and how much of it is read at once
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef MIGRATION_RAM_RESET_VMSTATE_FORMAT_H
#define MIGRATION_RAM_RESET_VMSTATE_FORMAT_H

#include "qemu/units.h"
#include "qapi/qapi-builtin-types.h"
#include "migration/ram.h"                /* RAM_SAVE_FLAG_* */
#include "migration/savevm.h"             /* QEMU_VM_* */

/* A name has at most 255 bytes; in memory, a 0 comes behind it */
#define VMSTATE_NAME            256

/* A section's type and number; RAM's begin so from the second one on */
#define SECTION_HEAD            5
/* The same with the length of the name; behind the name, instance and version */
#define SECTION_FULL_HEAD       6
#define SECTION_FULL_REST       8
/* A mark and the section's number */
#define SECTION_FOOTER          5
/* A mark, the length of the name, and the version */
#define SUBSECTION_HEAD         6
/* A command's type, number, and the length of its data */
#define COMMAND_HEAD            5

/* Address and flags of a page; a zero page has one more byte */
#define RAM_RECORD              8
#define ZERO_RECORD             9
#define ZERO_RECORD_FLAGS       (RAM_SAVE_FLAG_ZERO | RAM_SAVE_FLAG_CONTINUE)
/* MappedRamHeader: a version, the size of pages, and two offsets */
#define MAPPED_HEADER           28

/* The marks in front of the description, and the length of its text */
#define VMDESC_MARKS            6

/* A damaged description may ask for more */
#define VMDESC_MAX_DEPTH        64
#define VMDESC_MAX_SIZE         (1 * TiB)
/*
 * QEMU writes no object with less text.  So there is room for the nodes of all
 * of them, before the first is read; a text without any gets a few.
 */
#define VMDESC_MIN_OBJECT       24
#define VMDESC_MIN_NODES        16

/* An image may claim to have more behind RAM */
#define VMSTATE_MAX_DEVICES     (256 * MiB)

/* A QEMUFile reads this much at once */
#define RAM_STREAM_BUFFER       (32 * KiB)
/* Mapped pages are read in such pieces */
#define MAPPED_PIECE            (1 * MiB)
/* Runs of zero pages are read in pieces that grow */
#define ZERO_FIRST_PIECE        (32 * KiB)
#define ZERO_LAST_PIECE         (512 * KiB)
/* The search for the description begins with this much of the VM state */
#define VMSTATE_END             (64 * KiB)

/* The checksum of a VM state is made of its beginning, its end, and samples */
#define SUMMARY_BEGINNING       (4 * KiB)
#define SUMMARY_SAMPLE          (1 * KiB)
#define SUMMARY_NR_SAMPLES      16

#endif
