/*
 * Where each device's state is in a VM state
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef MIGRATION_RAM_RESET_VMSTATE_DEVICE_SECTIONS_H
#define MIGRATION_RAM_RESET_VMSTATE_DEVICE_SECTIONS_H

#include "block/block.h"
#include "migration/ram-reset/vmstate/vmdesc.h"

/**
 * DeviceSection: of one device, or of one vCPU
 *
 * @desc: has its name, which may occur in several sections
 * @instance: which of these
 * @start, @end: in the bytes that have been read, with head and footer
 * @data: between head and footer, @len bytes as @desc says
 */
typedef struct DeviceSection {
    const VMDesc *desc;
    uint32_t instance, version;
    size_t start, end;
    const uint8_t *data;
    size_t len;
} DeviceSection;

/**
 * DeviceSections: all of them; starts as zeroed memory
 */
typedef struct DeviceSections {
    VMDescription *description;
    GArray *list;               /* DeviceSection */
    uint8_t *data;              /* freed with them; may be NULL */
} DeviceSections;

/**
 * SectionBytes: what is read
 *
 * @what: for error messages
 * @data: @len bytes of sections, from @start on; they stay where they are
 * @footers: sections end with a footer
 */
typedef struct SectionBytes {
    const char *what;
    const uint8_t *data;
    size_t len;
    bool footers;
    size_t start;
} SectionBytes;

/**
 * device_sections_parse: find the devices' sections
 *
 * @bytes: from the first one on
 * @text: of the description, @len bytes; see vmdesc_parse()
 *
 * The description that QEMU writes behind the devices tells how long each
 * section is.  What the guest has put into its devices cannot make a section
 * look longer or shorter.  A section that is described, but was saved before
 * RAM, is passed over.
 *
 * Returns: false with @errp set if @bytes are not what @text describes
 */
bool device_sections_parse(DeviceSections *s, const SectionBytes *bytes,
                           const char *text, size_t len, Error **errp);

/**
 * device_sections_read: the same with a description at the end
 *
 * @bytes: the end of a VM state, from the footer of RAM's last section on
 */
bool device_sections_read(DeviceSections *s, const SectionBytes *bytes,
                          Error **errp);

/**
 * device_sections_load: the same with a VM state of @size bytes
 *
 * @bs: shows the VM state
 * @from: where in it the footer of RAM's last section is; not positive if
 *     that is not known
 */
bool device_sections_load(DeviceSections *s, BlockDriverState *bs,
                          uint64_t size, int64_t from, Error **errp);

/**
 * vmdesc_read: the description alone, without the sections
 *
 * Returns: NULL if the VM state, of @size bytes, has none that can be read
 */
VMDescription *vmdesc_read(BlockDriverState *bs, uint64_t size);

/**
 * device_sections_find: the section @name, with the instance @instance
 *
 * @first: where to begin to look
 *
 * Returns: NULL if there is none
 */
const DeviceSection *device_sections_find(const DeviceSections *s,
                                          const char *name, uint32_t instance,
                                          unsigned first);

void device_sections_clear(DeviceSections *s);

#endif
