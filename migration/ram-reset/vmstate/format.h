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

/* A name has at most 255 bytes, and in memory a terminating 0 */
#define VMSTATE_NAME            256

/* Type and number of a section; RAM's sections but the first begin so */
#define SECTION_HEAD            5
/* The first section of an owner also has the length of its name */
#define SECTION_FULL_HEAD       6
/* Instance and version follow the name */
#define SECTION_FULL_REST       8
/* A mark and the number of the section */
#define SECTION_FOOTER          5
/* A mark, the length of the name, and the version */
#define SUBSECTION_HEAD         6
/* Type, number and data length of a command */
#define COMMAND_HEAD            5

/* Address and flags of a page; a zero page has one more byte */
#define RAM_RECORD              8
#define ZERO_RECORD             9
#define ZERO_RECORD_FLAGS       (RAM_SAVE_FLAG_ZERO | RAM_SAVE_FLAG_CONTINUE)
/* MappedRamHeader: a version, the size of pages, and two offsets */
#define MAPPED_HEADER           28

/* Marks and text length in front of the description */
#define VMDESC_MARKS            6

/* Limits for a damaged description */
#define VMDESC_MAX_DEPTH        64
#define VMDESC_MAX_SIZE         (1 * TiB)
/*
 * QEMU writes no object with less text.  The length of a text limits the number
 * of its objects, so all nodes are allocated at once, with a few to spare.
 */
#define VMDESC_MIN_OBJECT       24
#define VMDESC_MIN_NODES        16

/* Limit for an image that claims to have more behind RAM */
#define VMSTATE_MAX_DEVICES     (256 * MiB)

/* A QEMUFile reads this many bytes at once */
#define RAM_STREAM_BUFFER       (32 * KiB)
/* Size of the pieces in which mapped pages are read */
#define MAPPED_PIECE            (1 * MiB)
/* Runs of zero pages are read in growing pieces */
#define ZERO_FIRST_PIECE        (32 * KiB)
#define ZERO_LAST_PIECE         (512 * KiB)
/* The description is first searched in this many bytes at the end */
#define VMSTATE_END             (64 * KiB)

/* The checksum of a VM state covers its beginning, its end, and samples */
#define SUMMARY_BEGINNING       (4 * KiB)
#define SUMMARY_SAMPLE          (1 * KiB)
#define SUMMARY_NR_SAMPLES      16

#endif
