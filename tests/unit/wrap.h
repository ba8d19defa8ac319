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

/* A device of a test */
uint32_t __real_snapctl_mmio_read(const void *regs, unsigned offset);
uint32_t __wrap_snapctl_mmio_read(const void *regs, unsigned offset);
void __real_snapctl_mmio_write(void *regs, unsigned offset, uint32_t value);
void __wrap_snapctl_mmio_write(void *regs, unsigned offset, uint32_t value);

#endif
