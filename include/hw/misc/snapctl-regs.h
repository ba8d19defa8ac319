/*
 * snapctl: the registers, for the device and for programs that drive it
 *
 * Only macros, so that a guest's program can include it.  The registers are
 * described in docs/specs/snapctl.rst.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef HW_MISC_SNAPCTL_REGS_H
#define HW_MISC_SNAPCTL_REGS_H

/* From the range for experiments, see docs/specs/pci-ids.rst */
#define SNAPCTL_PCI_VENDOR_ID       0x1af4
#define SNAPCTL_PCI_DEVICE_ID       0x10f0

#define SNAPCTL_REGS_BAR            0
#define SNAPCTL_MSIX_BAR            1
#define SNAPCTL_REGION_BAR          2
#define SNAPCTL_REGS_SIZE           0x1000

/* Offsets in bytes; 32 bits unless another size is given */
#define SNAPCTL_MAGIC               0x00
#define SNAPCTL_VERSION             0x04
#define SNAPCTL_FEATURES            0x08
#define SNAPCTL_SLOTS               0x0c
#define SNAPCTL_SLOT                0x10
#define SNAPCTL_COMMAND             0x14
#define SNAPCTL_STATUS              0x18
#define SNAPCTL_ERROR               0x1c
#define SNAPCTL_GENERATION          0x20    /* 64 bits */
#define SNAPCTL_LOAD_NS             0x28    /* 64 bits */
#define SNAPCTL_MIN_INTERVAL        0x30    /* in ms */
#define SNAPCTL_RANDOM              0x40    /* SNAPCTL_RANDOM_SIZE bytes */
#define SNAPCTL_RANDOM_SIZE         32

#define SNAPCTL_MAGIC_VALUE         0x50414e53      /* "SNAP" */
#define SNAPCTL_VERSION_VALUE       1

/* SNAPCTL_FEATURES */
#define SNAPCTL_FEATURE_SAVE        0x1
#define SNAPCTL_FEATURE_LOAD        0x2
#define SNAPCTL_FEATURE_REGION      0x4
#define SNAPCTL_FEATURE_MSIX        0x8

/* SNAPCTL_COMMAND */
#define SNAPCTL_COMMAND_SAVE        1
#define SNAPCTL_COMMAND_LOAD        2

/* SNAPCTL_STATUS */
#define SNAPCTL_STATUS_IDLE         0
#define SNAPCTL_STATUS_PENDING      1
#define SNAPCTL_STATUS_SAVED        2
#define SNAPCTL_STATUS_LOADED       3
#define SNAPCTL_STATUS_REFUSED      4
#define SNAPCTL_STATUS_FAILED       5

/* SNAPCTL_ERROR */
#define SNAPCTL_ERROR_NONE          0
#define SNAPCTL_ERROR_COMMAND       1
#define SNAPCTL_ERROR_DENIED        2
#define SNAPCTL_ERROR_SLOT          3
#define SNAPCTL_ERROR_EMPTY         4
#define SNAPCTL_ERROR_TOO_SOON      5
#define SNAPCTL_ERROR_BUSY          6
#define SNAPCTL_ERROR_HOST          7
#define SNAPCTL_ERROR_LIMIT         8

#endif
