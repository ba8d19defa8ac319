/*
 * RAM reset: the property keep-disks=
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef RAM_RESET_DISKS_H
#define RAM_RESET_DISKS_H

#include "system/ram-reset-object.h"

/* To be called by class_init of TYPE_RAM_RESET */
void ram_reset_add_keep_disks(ObjectClass *oc);

/*
 * Whether all that @rr's keep-disks= names are there.  False with @errp set if
 * one is not.  With the BQL held, when the machine has been made.
 */
bool ram_reset_check_keep_disks(RamReset *rr, Error **errp);

#endif
