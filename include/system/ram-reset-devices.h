/*
 * RAM reset: devices that need be neither reset nor loaded
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef SYSTEM_RAM_RESET_DEVICES_H
#define SYSTEM_RAM_RESET_DEVICES_H

#include "system/ram-reset-compat.h"
#include "migration/vmstate.h"
#include "qapi/qapi-types-ram-reset.h"

/*
 * A load resets all devices and loads the state of each.  If a device is, byte
 * for byte in QEMU's own memory, as it was at the end of the last load of the
 * same snapshot, it is what both would make of it, and is kept as it is.
 *
 * All functions are called with the BQL held, the VM stopped and I/O drained.
 */

/**
 * ram_reset_devices_copy: devices have just been loaded; remember them
 */
void ram_reset_devices_copy(void);

/**
 * ram_reset_devices_forget: what is remembered is of no use any more
 */
void ram_reset_devices_forget(void);

/**
 * ram_reset_devices_distrust: devices of the class of @dev, which is known, are
 * loaded with each load from now on
 *
 * @problem: why, for query-ram-reset
 */
void ram_reset_devices_distrust(DeviceState *dev, const char *problem);

/**
 * RamResetSections: the sections of a VM state that has been loaded before
 *
 * @find: the one of @part, whose description has the name @vmsd; NULL if there
 *     is none, or there may be others
 * @check: whether the device, saved now, is what @section has; it is unchanged
 * @leave_out: @section, which @find has returned, is not to be loaded
 */
typedef struct RamResetSections {
    void *(*find)(void *opaque, VMStateIf *part, const char *vmsd);
    bool (*check)(DeviceState *dev, void *section);
    void (*leave_out)(void *section, void *opaque);
    void *opaque;
} RamResetSections;

/**
 * ram_reset_devices_hold: until ram_reset_devices_release(), a reset of all
 * devices leaves those alone that are what is remembered
 *
 * @map: the memory map is that of the snapshot, and held
 *
 * What @stream finds is remembered until ram_reset_devices_forget().
 *
 * Returns: the number of devices that are kept
 */
unsigned ram_reset_devices_hold(bool map, const RamResetSections *stream);

/**
 * ram_reset_devices_complete_reset: between the reset of all devices and
 * ram_reset_devices_release(); reset in those that are not kept what neither a
 * reset clears nor each VM state has
 */
void ram_reset_devices_complete_reset(void);

/**
 * ram_reset_devices_renew: between the reset of all devices and
 * ram_reset_devices_release(); do for those that are kept what else the reset
 * and the load would do, outside of them
 */
void ram_reset_devices_renew(void);

/**
 * ram_reset_devices_release: all devices have been reset
 *
 * Returns: false if the reset has unplugged some, which may have been kept
 */
bool ram_reset_devices_release(void);

/**
 * ram_reset_devices_count: how many devices have a VM state, each with its
 * parts
 */
unsigned ram_reset_devices_count(void);

/**
 * ram_reset_query_loaded_devices: those of them that each load loads, owned by
 * the caller
 */
RamResetLoadedDevicesList *ram_reset_query_loaded_devices(void);

#endif
