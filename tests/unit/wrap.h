/*
 * Calls that the linker leads elsewhere (--wrap), to have a kernel that cannot
 * do something
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef RAM_RESET_WRAP_H
#define RAM_RESET_WRAP_H

int __real_ioctl(int fd, unsigned long request, void *arg);
int __wrap_ioctl(int fd, unsigned long request, void *arg);

#endif
