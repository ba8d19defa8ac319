/*
 * RAM reset: differences between the supported releases of QEMU
 *
 * The code is written for the newest release.  This header gives its names to
 * older ones.  ram-reset-compat-dirty.h and -tcg.h are for code of one target.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef SYSTEM_RAM_RESET_COMPAT_H
#define SYSTEM_RAM_RESET_COMPAT_H

/*
 * Release candidates of 11.1 are 11.0.90 and up; the development tree before
 * them is 11.0.50.  There are three releases a year: 10.2 is followed by 11.0.
 */
#define RAM_RESET_QEMU_NR(major, minor) ((major) * 3 + (minor))
#define RAM_RESET_QEMU_SINCE(major, minor) \
    (RAM_RESET_QEMU_NR(QEMU_VERSION_MAJOR, QEMU_VERSION_MINOR) + \
     (QEMU_VERSION_MICRO >= 50) >= RAM_RESET_QEMU_NR(major, minor))

#include "exec/cpu-common.h"
#include "exec/target_page.h"

/* The data of class_init became const with 10.1 */
#if RAM_RESET_QEMU_SINCE(10, 1)
#include "accel/accel-cpu-ops.h"
#include "system/address-spaces.h"
#include "system/memory.h"
#include "system/ramblock.h"
typedef const void RamResetClassData;
#else
#include "system/accel-ops.h"
#include "exec/address-spaces.h"
#include "exec/memory.h"
#include "exec/ramblock.h"
typedef void RamResetClassData;
#endif

/* Return the handler, so that it can be removed */
#if RAM_RESET_QEMU_SINCE(10, 1)
#define ram_reset_add_vm_change_state_handler(dev, cb, opaque) \
    qdev_add_vm_change_state_handler(dev, cb, NULL, opaque)
#else
#define ram_reset_add_vm_change_state_handler(dev, cb, opaque) \
    qdev_add_vm_change_state_handler(dev, cb, opaque)
#endif

#if RAM_RESET_QEMU_SINCE(11, 0)
#include "hw/core/boards.h"
#include "hw/core/qdev.h"
#include "hw/core/qdev-properties.h"
#include "hw/core/sysbus.h"
#include "hw/core/vmstate-if.h"
#include "qemu/aio.h"
/* This is on for both sides */
#define migration_incoming_colo_enabled() migrate_colo()
#else
#include "hw/boards.h"
#include "hw/qdev-core.h"
#include "hw/qdev-properties.h"
#include "hw/sysbus.h"
#include "hw/vmstate-if.h"
#include "block/aio.h"
#define MIG_EVENT_SETUP MIG_EVENT_PRECOPY_SETUP
#endif

/* This leaves out the end of the VM state */
#if !RAM_RESET_QEMU_SINCE(11, 1)
#define qemu_savevm_state_non_iterable(f, errp) \
    (!qemu_savevm_state_complete_precopy_non_iterable(f, true) || \
     (error_setg(errp, "a device cannot be saved"), false))
#if RAM_RESET_QEMU_SINCE(10, 2)
#define vmstate_load_vmsd(f, vmsd, opaque, version, errp) \
    (!vmstate_load_state(f, vmsd, opaque, version, errp))
#define vmstate_save_vmsd(f, vmsd, opaque, desc, errp) \
    (!vmstate_save_state(f, vmsd, opaque, desc, errp))
#else
#define vmstate_load_vmsd(f, vmsd, opaque, version, errp) \
    (!vmstate_load_state(f, vmsd, opaque, version) || \
     (error_setg(errp, "a device cannot be loaded"), false))
#define vmstate_save_vmsd(f, vmsd, opaque, desc, errp) \
    (!vmstate_save_state_with_err(f, vmsd, opaque, desc, errp))
#endif
#endif

/*
 * RAM_RESET_PREPARE_DELETE: a user creatable object's class calls bool
 * @function(UserCreatable *uc, Error **errp) before it deletes an object, and
 * ram_reset_set_prepare_delete() in class_init.  Before 11.1 QEMU drops the
 * error, and reports that the object is in use.
 */
#if RAM_RESET_QEMU_SINCE(11, 1)
#include "qemu/base-arch-defs.h"
#include "system/ramlist.h"
#define RAM_RESET_PREPARE_DELETE(function)
#define ram_reset_set_prepare_delete(ucc, function) \
    ((ucc)->prepare_delete = function)
#else
#include "system/arch_init.h"
#define RAM_RESET_PREPARE_DELETE(function)                  \
    static bool function ## _is_possible(UserCreatable *uc) \
    {                                                       \
        return function(uc, NULL);                          \
    }
#define ram_reset_set_prepare_delete(ucc, function) \
    ((ucc)->can_be_deleted = function ## _is_possible)
#endif

/*
 * With migration capability mapped-ram: whether QEMU can save and load
 * snapshots, and whether it can with capability x-ignore-shared
 */
#define RAM_RESET_MAPPED_RAM        RAM_RESET_QEMU_SINCE(10, 2)
#define RAM_RESET_MAPPED_RAM_SHARED RAM_RESET_QEMU_SINCE(11, 1)

#endif
