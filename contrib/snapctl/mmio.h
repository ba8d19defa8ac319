/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Access to registers: each call is exactly one access of that size */

#ifndef CONTRIB_SNAPCTL_MMIO_H
#define CONTRIB_SNAPCTL_MMIO_H

#include <stdint.h>

uint32_t snapctl_mmio_read(const void *regs, unsigned offset);
void snapctl_mmio_write(void *regs, unsigned offset, uint32_t value);

#endif
