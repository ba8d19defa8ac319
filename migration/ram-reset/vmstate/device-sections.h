/*
 * The sections of devices in a VM state
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef MIGRATION_RAM_RESET_VMSTATE_DEVICE_SECTIONS_H
#define MIGRATION_RAM_RESET_VMSTATE_DEVICE_SECTIONS_H

#include "block/block.h"
#include "migration/ram-reset/vmstate/vmdesc.h"

/**
 * DeviceSection: the section of a device, or of a vCPU
 *
 * @desc: its description and name; several sections may have one name
 * @instance: distinguishes sections of one name
 * @start, @end: its place in SectionBytes, with head and footer
 * @data: its content, @len bytes between head and footer
 */
typedef struct DeviceSection {
    const VMDesc *desc;
    uint32_t instance, version;
    size_t start, end;
    const uint8_t *data;
    size_t len;
} DeviceSection;

/**
 * DeviceSections: all sections of a VM state, in its order; starts as zeroed
 * memory
 */
typedef struct DeviceSections {
    VMDescription *description;
    GArray *list;               /* DeviceSection */
    uint8_t *data;              /* owned; NULL if the caller owns the bytes */
} DeviceSections;

/**
 * SectionBytes: the bytes of sections
 *
 * @what: names the bytes in error messages
 * @data: @len bytes, which must live as long as the sections
 * @footers: each section ends with a footer
 * @start: the position of the first section in @data
 */
typedef struct SectionBytes {
    const char *what;
    const uint8_t *data;
    size_t len;
    bool footers;
    size_t start;
} SectionBytes;

/**
 * device_sections_parse: find all sections of devices
 *
 * @text: the description, @len bytes; see vmdesc_parse()
 *
 * The description that QEMU writes behind the devices has the length of each
 * section, so content that a guest has chosen cannot change the bounds of a
 * section.  A section that was saved before RAM is described, but skipped.
 *
 * The caller calls device_sections_clear() in any case.
 *
 * Returns: false with @errp set if @bytes differ from the description
 */
bool device_sections_parse(DeviceSections *s, const SectionBytes *bytes,
                           const char *text, size_t len, Error **errp);

/**
 * device_sections_read: as device_sections_parse(), for the end of a VM state
 *
 * @bytes: from the footer of the last RAM section on; they end with the
 *     description
 */
bool device_sections_read(DeviceSections *s, const SectionBytes *bytes,
                          Error **errp);

/**
 * device_sections_of_memory: as device_sections_read(), for a VM state in memory
 *
 * @vmstate: must live as long as the sections
 * @from: the position in it of the footer of the last RAM section, in bytes
 */
bool device_sections_of_memory(DeviceSections *s, GBytes *vmstate,
                               uint64_t from, Error **errp);

/**
 * device_sections_load: as device_sections_read(), for an image
 *
 * @bs: shows the VM state, of @size bytes
 * @from: the position in it of the footer of the last RAM section, in bytes; 0
 *     or negative if it is unknown
 *
 * With the BQL held.
 */
bool device_sections_load(DeviceSections *s, BlockDriverState *bs,
                          uint64_t size, int64_t from, Error **errp);

/**
 * vmdesc_read: read only the description of a VM state of @size bytes
 *
 * With the BQL held.
 *
 * Returns: a description, freed by the caller; NULL if the VM state has none,
 *     or it cannot be read
 */
VMDescription *vmdesc_read(BlockDriverState *bs, uint64_t size);

/**
 * device_sections_find: find the section @name with the instance @instance
 *
 * @first: the index in the list at which the search begins
 *
 * Returns: a section, owned by @s; NULL if there is none
 */
const DeviceSection *device_sections_find(const DeviceSections *s,
                                          const char *name, uint32_t instance,
                                          unsigned first);

void device_sections_clear(DeviceSections *s);

#endif
