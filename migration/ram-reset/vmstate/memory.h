/*
 * A VM state in memory
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef MIGRATION_RAM_RESET_VMSTATE_MEMORY_H
#define MIGRATION_RAM_RESET_VMSTATE_MEMORY_H

#include "migration/qemu-file-types.h"

/**
 * vmstate_memory_create: open a file that collects a VM state
 *
 * @bytes: the array to append to, which the file references
 *
 * Returns: a file for writing, to be closed by the caller
 */
QEMUFile *vmstate_memory_create(GByteArray *bytes);

#endif
