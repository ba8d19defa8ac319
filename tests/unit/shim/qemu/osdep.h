/*
 * In place of QEMU's header, for code that builds without QEMU
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef SHIM_QEMU_OSDEP_H
#define SHIM_QEMU_OSDEP_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define QEMU_ALIGN_UP(n, unit) (((n) + (unit) - 1) / (unit) * (unit))

#endif
