/*
 * RAM reset: whose the file is that a RAM block is of
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef RAM_RESET_BLOCK_FILE_OWNER_H
#define RAM_RESET_BLOCK_FILE_OWNER_H

#include "qom/object.h"

/*
 * Why somebody other than QEMU may have the file @fd of a RAM block, other than
 * by having been given it by a device, and what would help; NULL if nobody can,
 * or if there is no file (-1).  A static string.
 *
 * @backend: the memory backend that the block is of; NULL if it is of none
 */
const char *ram_reset_file_refusal(Object *backend, int fd);

#endif
