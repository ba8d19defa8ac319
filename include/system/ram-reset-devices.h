/*
 * RAM reset: unchanged devices, which a load neither resets nor loads
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef SYSTEM_RAM_RESET_DEVICES_H
#define SYSTEM_RAM_RESET_DEVICES_H

#include "system/ram-reset-compat.h"
#include "migration/vmstate.h"
#include "qapi/qapi-types-ram-reset.h"

/*
 * A load resets all devices and loads the state of each.  A device may be, byte
 * for byte in QEMU's own memory, as it was after the last load of the same
 * snapshot.  Then reset and load would not change it, and both are skipped: the
 * device is "unchanged".
 *
 * All functions are called with the BQL held, the VM stopped and I/O drained.
 */

/** ram_reset_devices_copy: copy the state of all devices after a load */
void ram_reset_devices_copy(void);

/** ram_reset_devices_drop_copy: drop the copy */
void ram_reset_devices_drop_copy(void);

/**
 * ram_reset_devices_distrust: from now on load all devices of the class of
 * @dev, which is known, with each load
 *
 * @problem: the reason for query-ram-reset
 */
void ram_reset_devices_distrust(DeviceState *dev, const char *problem);

/**
 * RamResetSections: the sections of a VM state that has been loaded before
 *
 * @find: return the section of @part, whose description has the name @vmsd;
 *     NULL if there is none, or there may be others
 * @check: save the VM state of @dev, an unchanged device, and return whether it
 *     is equal to @section
 * @leave_out: do not load @section, which @find has returned
 */
typedef struct RamResetSections {
    void *(*find)(void *opaque, VMStateIf *part, const char *vmsd);
    bool (*check)(DeviceState *dev, void *section);
    void (*leave_out)(void *section, void *opaque);
    void *opaque;
} RamResetSections;

/**
 * ram_reset_devices_begin_reset: until ram_reset_devices_end_reset(), let a
 * reset of all devices skip the unchanged ones
 *
 * @map: the memory map is that of the snapshot, and frozen
 *
 * Sections found by @stream are cached until ram_reset_devices_drop_copy().
 *
 * Returns: the number of unchanged devices
 */
unsigned ram_reset_devices_begin_reset(bool map,
                                       const RamResetSections *stream);

/**
 * ram_reset_devices_complete_reset: between the reset of all devices and
 * ram_reset_devices_end_reset(), reset in the other devices the fields that
 * neither a reset clears nor each VM state has
 */
void ram_reset_devices_complete_reset(void);

/**
 * ram_reset_devices_renew: between the reset of all devices and
 * ram_reset_devices_end_reset(), do for the unchanged devices what reset and
 * load would do outside of them
 */
void ram_reset_devices_renew(void);

/**
 * ram_reset_devices_end_reset: all devices have been reset
 *
 * Returns: false if the reset has unplugged some, which may have been unchanged
 * ones
 */
bool ram_reset_devices_end_reset(void);

/**
 * ram_reset_devices_count: how many devices have a VM state, each with its
 * parts
 */
unsigned ram_reset_devices_count(void);

/**
 * ram_reset_query_loaded_devices: the devices that each load loads, owned by
 * the caller
 */
RamResetLoadedDevicesList *ram_reset_query_loaded_devices(void);

#endif
