/*
 * Loading snapshots that were saved with migration capability mapped-ram
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "system/ram-reset-compat.h"
#include "migration.h"
#include "options.h"
#include "migration/ram-reset-mapped.h"

const char *ram_reset_mapped_ram_blocker(void)
{
    if (!migrate_mapped_ram()) {
        return NULL;
    }
    if (!RAM_RESET_MAPPED_RAM) {
        return "migration capability 'mapped-ram' is on, with which this QEMU "
               "cannot have snapshots, set it to off";
    }
    if (migrate_ignore_shared() && !RAM_RESET_MAPPED_RAM_SHARED) {
        return "migration capabilities 'mapped-ram' and 'x-ignore-shared' are "
               "on, this QEMU cannot load what it saves with both, set one to "
               "off";
    }
    return NULL;
}
