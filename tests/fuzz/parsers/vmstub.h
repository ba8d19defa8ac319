/*
 * A VM state in memory, for parsers that read one from an image
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef FUZZ_VMSTUB_H
#define FUZZ_VMSTUB_H

#include "qemu/osdep.h"
#include "block/block_int.h"

/*
 * The image that a BlockDriverState of any kind, and a file that is opened,
 * has; behind it are zeros, as in a qcow2 image, up to some end
 */
extern const uint8_t *vmstub_data;
extern size_t vmstub_size;

/* An image whose snapshots can be shown */
BlockDriverState *vmstub_image(void);

#endif
