/*
 * The description that a saved VM state ends with
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef MIGRATION_RAM_RESET_VMSTATE_VMDESC_H
#define MIGRATION_RAM_RESET_VMSTATE_VMDESC_H

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
 * @content: bytes that @fields and @subsections take in the VM state; -1 if
 *     that is more than there can be
 * @inside: what a field that is a structure has; else NULL
 * @fields: the first one; they are in the order of the VM state
 * @subsections: the first one; they come after fields
 * @next: of the list that this is in
 */
typedef struct VMDesc VMDesc;
struct VMDesc {
    const char *name, *vmsd;
    int64_t instance, size, len, index, content;
    const VMDesc *inside;
    VMDesc *fields, *subsections, *next;
};

/**
 * VMDescription: the whole description
 *
 * @devices: the first section; they are in the order of the VM state
 * @cpus: the cpu_index of each CPU, a uint32_t
 * @text, @nodes: memory of @devices
 */
typedef struct VMDescription {
    const VMDesc *devices;
    GArray *cpus;
    char *text;
    VMDesc *nodes;
} VMDescription;

/**
 * vmdesc_find: the text of the description
 *
 * @buf: @len bytes that the VM state ends with
 *
 * A guest cannot make another text be found.  QEMU writes the description
 * last, and all bytes of it are printable ASCII.  So the text begins behind
 * the last byte that is not, or up to four bytes later, as its length is in
 * front of it; and these bytes, too, are QEMU's.
 *
 * Returns: where in @buf it begins; it goes on to the end.  NULL if there is
 *     none.
 */
const char *vmdesc_find(const uint8_t *buf, size_t len);

/**
 * vmdesc_parse: read the text of a description, @len bytes
 *
 * QEMU's own parser refuses objects that have a member twice, as a field that
 * is a list has.  Here lists of such members are joined.
 *
 * Time is linear in @len, and memory at most five times @len.
 *
 * Returns: to be freed; NULL if it cannot be read
 */
VMDescription *vmdesc_parse(const char *text, size_t len);

void vmdesc_free(VMDescription *description);

/**
 * vmdesc_head_size: what a subsection begins with, before its fields
 */
int64_t vmdesc_head_size(const VMDesc *subsection);

G_DEFINE_AUTOPTR_CLEANUP_FUNC(VMDescription, vmdesc_free)

#endif
