/*
 * RAM reset: find out whether other processes may have a RAM block's file
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef RAM_RESET_BLOCK_FILE_OWNER_H
#define RAM_RESET_BLOCK_FILE_OWNER_H

#include "qom/object.h"

/*
 * The reason why a process other than QEMU may have the file @fd of a RAM
 * block, and a remedy; NULL if none can, or if there is no file (-1).  A
 * process that got the file from a device does not count.  A static string.
 *
 * @backend: the memory backend of the block, or NULL
 */
const char *ram_reset_file_refusal(Object *backend, int fd);

#endif
