/*
 * The description at the end of a saved VM state
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef MIGRATION_RAM_RESET_VMSTATE_VMDESC_H
#define MIGRATION_RAM_RESET_VMSTATE_VMDESC_H

/**
 * VMDesc: a section of a device, a field of it, or a structure in it
 *
 * @name: the name of a section or a field; NULL for the structure in a field
 * @vmsd: the name of the VMStateDescription with @fields; NULL if there is none
 * @instance: the instance of a section
 * @size: the size of a field in bytes, with its structure; the size of one
 *     element if the description of an array has one element for all
 * @len: the length of such an array; 1 for other fields
 * @index: the index of an element if each element of an array is described; -1
 *     for other fields
 * @content: the size of all @fields and @subsections in the VM state, in bytes;
 *     -1 if it is beyond a limit
 * @inside: the structure of a field; NULL if the field is no structure
 * @fields: the first field, in the order of the VM state
 * @subsections: the first subsection; all of them follow the fields
 * @next: the next element of the same list
 */
typedef struct VMDesc VMDesc;
struct VMDesc {
    const char *name, *vmsd;
    int64_t instance, size, len, index, content;
    const VMDesc *inside;
    VMDesc *fields, *subsections, *next;
};

/**
 * VMDescription: the description of a VM state
 *
 * @devices: the first section, in the order of the VM state
 * @cpus: the cpu_index of each CPU, a uint32_t
 * @text, @nodes: the memory that @devices points to
 */
typedef struct VMDescription {
    const VMDesc *devices;
    GArray *cpus;
    char *text;
    VMDesc *nodes;
} VMDescription;

/**
 * vmdesc_find: find the text of the description
 *
 * @buf: the last @len bytes of the VM state
 *
 * A guest cannot make this function find another text.  QEMU writes the
 * description last, and each byte of it is printable ASCII.  The text begins
 * behind the last byte that is not printable, or up to four bytes later, since
 * its length is in front of it.  A guest chooses none of these bytes.
 *
 * Returns: the place in @buf where the text begins, which goes on to the end;
 *     NULL if there is no description
 */
const char *vmdesc_find(const uint8_t *buf, size_t len);

/**
 * vmdesc_parse: parse the text of a description, @len bytes
 *
 * A field that is a list has a member twice.  QEMU's own parser refuses that;
 * this one joins the lists of such members.
 *
 * Takes time in proportion to @len, and memory of at most five times @len.
 *
 * Returns: a description, freed by the caller; NULL if the text is damaged
 */
VMDescription *vmdesc_parse(const char *text, size_t len);

void vmdesc_free(VMDescription *description);

/**
 * vmdesc_head_size: the size of a subsection in front of its fields, in bytes
 */
int64_t vmdesc_head_size(const VMDesc *subsection);

G_DEFINE_AUTOPTR_CLEANUP_FUNC(VMDescription, vmdesc_free)

#endif
