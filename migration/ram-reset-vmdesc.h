/*
 * The description that a saved VM state ends with
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef MIGRATION_RAM_RESET_VMDESC_H
#define MIGRATION_RAM_RESET_VMDESC_H

/**
 * VMDesc: a section of a device, a field of it, or a structure in it
 *
 * @name: of a section its name, of a field that of the device's code; NULL of
 *     the structure in a field
 * @vmsd: the name of the VMStateDescription that @fields are of; NULL without
 * @instance: of a section
 * @size: of a field in bytes, with its structure, but of one of an array that
 *     has an element described for all
 * @len: of that array; 1 of other fields
 * @index: in an array of which each element is described; -1 of other fields
 * @inside: what a field that is a structure has; else NULL
 * @fields: in the order of the VM state
 * @subsections: come after them
 */
typedef struct VMDesc VMDesc;
struct VMDesc {
    char *name, *vmsd;
    int64_t instance, size, len, index;
    VMDesc *inside;
    GPtrArray *fields, *subsections;
};

/**
 * vmdesc_find: the text of the description
 *
 * @buf: @len bytes that the VM state ends with
 *
 * Returns: where in @buf it begins; it goes on to the end.  NULL if there is
 *     none.
 */
const char *vmdesc_find(const uint8_t *buf, size_t len);

/**
 * vmdesc_find_first: the same where it is not known where the VM state ends
 *
 * @buf: @len bytes of it, of which the description may be the last ones
 * @text_len: set to its length
 */
const char *vmdesc_find_first(const uint8_t *buf, size_t len,
                              size_t *text_len);

/**
 * vmdesc_parse: the sections of devices
 *
 * @text: of the description, @len bytes
 *
 * QEMU's own parser refuses objects that have a member twice, as a field that
 * is a list has.  Here lists of such members are joined.
 *
 * Returns: VMDesc, in the order of the VM state; NULL if it cannot be read
 */
GPtrArray *vmdesc_parse(const char *text, size_t len);

/**
 * vmdesc_size: what the fields and subsections of @d take in the VM state
 *
 * Returns: bytes; -1 if that is more than there can be
 */
int64_t vmdesc_size(const VMDesc *d);

/**
 * vmdesc_head_size: what a subsection begins with, before its fields
 */
int64_t vmdesc_head_size(const VMDesc *subsection);

#endif
