/*
 * The disks of a machine that is forked
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef MIGRATION_RAM_RESET_FORK_DISKS_H
#define MIGRATION_RAM_RESET_FORK_DISKS_H

#include "qapi/qapi-types-ram-reset.h"

/*
 * Both need the BQL, in the main thread.
 *
 * fork_disks_are_able: whether each disk that the guest can write to is in
 * @disks, and can get its overlay.
 *
 * fork_disks_freeze: gives all of them their overlays, or none, and makes the
 * disks read-only.  The guest is paused.
 */
bool fork_disks_are_able(const RamResetForkDiskList *disks, Error **errp);
bool fork_disks_freeze(const RamResetForkDiskList *disks, Error **errp);

#endif
