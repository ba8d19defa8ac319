/*
 * RAM reset: the layouts of devices in this build
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef RAM_RESET_DEVICES_LAYOUTS_H
#define RAM_RESET_DEVICES_LAYOUTS_H

/**
 * DeviceLayout: the result of layouts.py for a class of devices
 *
 * @type: name of the class; NULL ends the table
 * @problem: the reason why the layout is not known; NULL if it is known
 */
typedef struct DeviceLayout {
    const char *type, *problem;
} DeviceLayout;

/* layouts.py writes the table while QEMU is built */
extern const DeviceLayout device_layouts[];

#endif
