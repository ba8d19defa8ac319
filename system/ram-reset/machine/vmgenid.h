/*
 * A new VM generation ID for each snapshot load
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef RAM_RESET_MACHINE_VMGENID_H
#define RAM_RESET_MACHINE_VMGENID_H

/**
 * ram_reset_renew_vmgenid: give the VM a new generation ID, if an object has
 * new-vmgenid=on
 *
 * To be called in a load, before devices are loaded: the vmgenid device then
 * writes the ID to guest RAM and raises its event.  BQL held.
 */
void ram_reset_renew_vmgenid(void);

#endif
