/*
 * RAM reset: the property keep-disks=
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef RAM_RESET_DISKS_H
#define RAM_RESET_DISKS_H

#include "system/ram-reset-object.h"

/* Called by class_init of TYPE_RAM_RESET */
void ram_reset_add_keep_disks(ObjectClass *oc);

/*
 * Whether all disks in @rr's keep-disks= exist.  False with @errp set if one
 * does not.  BQL held; the machine has been made.
 */
bool ram_reset_check_keep_disks(RamReset *rr, Error **errp);

#endif
