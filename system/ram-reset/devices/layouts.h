/*
 * RAM reset: the classes of devices whose memory was read for this build
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef RAM_RESET_DEVICES_LAYOUTS_H
#define RAM_RESET_DEVICES_LAYOUTS_H

/**
 * DeviceLayout: the result of layouts.py for a class of devices
 *
 * @type: its name; NULL ends the table
 * @problem: why the memory of the class is not known; NULL if it is
 */
typedef struct DeviceLayout {
    const char *type, *problem;
} DeviceLayout;

/* layouts.py writes the table while QEMU is built */
extern const DeviceLayout device_layouts[];

#endif
