/*
 * RAM reset: what differs between the QEMU series that it is built in
 *
 * Nothing but includes and types: 10.1 moved the memory headers from exec/
 * to system/ and made the data of class_init const.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef SYSTEM_RAM_RESET_COMPAT_H
#define SYSTEM_RAM_RESET_COMPAT_H

#if __has_include("system/ramblock.h")
#include "system/address-spaces.h"
#include "system/memory.h"
#include "system/ramblock.h"
typedef const void RamResetClassData;
#else
#include "exec/address-spaces.h"
#include "exec/memory.h"
#include "exec/ramblock.h"
typedef void RamResetClassData;
#endif
#include "exec/cpu-common.h"
#include "exec/target_page.h"

#endif
