/*
 * snapctl: a PCI device through which the guest saves and loads snapshots
 *
 * There is at most one.  The guest's side is in docs/specs/snapctl.rst.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef HW_MISC_SNAPCTL_H
#define HW_MISC_SNAPCTL_H

#include "hw/misc/snapctl-regs.h"

#define TYPE_SNAPCTL    "snapctl"

#endif
