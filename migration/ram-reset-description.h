/*
 * Where each device's state is in a VM state
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef MIGRATION_RAM_RESET_DESCRIPTION_H
#define MIGRATION_RAM_RESET_DESCRIPTION_H

/**
 * SectionPlace: a section of a VM state
 *
 * @id: as in the section's head; may occur in several sections
 * @instance: which of these
 * @size: of the content, without head and footer
 * @start, @end: in the data that has been read, with head and footer
 */
typedef struct SectionPlace {
    char *id;
    uint32_t instance;
    uint64_t size;
    size_t start, end;
} SectionPlace;

/**
 * ram_reset_device_sections: find the devices' sections
 *
 * @data: a VM state from the footer of RAM's last section on
 *
 * The description that QEMU writes behind the devices tells how long each
 * section is.  What the guest has put into its devices cannot make a section
 * look longer or shorter.
 *
 * Returns: an array of SectionPlace, to be freed; NULL if there is no
 *     description, or it is not a description of all that is there
 */
GPtrArray *ram_reset_device_sections(const uint8_t *data, size_t size);

#endif
